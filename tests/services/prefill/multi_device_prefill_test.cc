// Prompts on several devices, some of which fail, hang, are too small or belong to somebody else.
#include "services/prefill/multi_device_prefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/services/prefill/distributed/distributed_fixture.h"
#include "tests/support/test_kernels.h"

namespace moestro::prefill {
namespace {

constexpr int64_t kCount = 300;
constexpr model::MlaForm kForm = model::MlaForm::kUnabsorbed;

class MultiDevicePrefillTest : public DistributedTest {
 protected:
  static constexpr MemoryLimits kLimits{.dense_bytes = kDense, .ring_slots = 2, .min_pass_rows = 16};

  // A device, and what runs on it.
  struct Member {
    Member(const weights::ModelSpec& spec, const model::ModelWeights& weights, WorkerPool& pool)
        : host(std::make_shared<Host>(spec, weights, 48)),
          compute(spec, weights, TestKernels(), pool, 48),
          single(host->device, spec, weights, compute, kLimits) {}
    std::shared_ptr<Host> host;
    engine::HostPrefill compute;
    StreamPrefill single;
    std::unique_ptr<LentDevice> owner;  // if it is somebody else's
  };

  void AddDevices(int own, int borrowed = 0) {
    std::vector<PromptDevice> devices;
    for (int i = 0; i < own + borrowed; ++i) {
      Member& member = *members_.emplace_back(std::make_unique<Member>(spec(), weights_, pool_));
      PromptDevice device{
          .name = "host " + std::to_string(i),
          .rank = {.device = &member.host->device, .kernels = &member.host->kernels, .owner = member.host},
          .single = &member.single,
          .workers = &member.host->pool};
      if (i >= own) {
        const std::string path = testing::TempDir() + "prompt-devices-" + std::to_string(getpid()) + ".lock";
        member.owner = LentDevice::Lend(path).value();
        device.borrow = [path] { return DeviceLoan::Borrow(path); };
      }
      devices.push_back(device);
    }
    prefill_ = std::make_unique<MultiDevicePrefill>(spec(), weights_, devices,
                                                    MultiDevicePrefill::Options{kLimits, timeout_seconds_});
  }

  // Operations of that name on the device do this first.
  void On(int device, const std::string& operation, std::function<absl::Status()> what) {
    members_[static_cast<size_t>(device)]->host->device.set_fault(
        [=](const std::string& name) { return name == operation ? what() : absl::OkStatus(); });
  }
  void Heal(int device) {
    On(device, "", [] { return absl::OkStatus(); });
  }

  Outcome Run(absl::FunctionRef<absl::Status()> interrupted = model::NeverInterrupted,
              const StreamEvents& events = {}) {
    const model::TestSequence sequence(spec(), kCount);
    const kv::KvPages pages[] = {sequence.pages()};
    const std::vector<int32_t> tokens = Tokens(kCount);
    const std::vector<model::EngineRow> rows = Rows(tokens, 1);
    Outcome outcome;
    outcome.status =
        prefill_->Run(rows, pages, kForm, interrupted, events, [&](int64_t row, std::span<const float> logits) {
          EXPECT_EQ(row, kCount - 1);
          outcome.logits.emplace_back(logits.begin(), logits.end());
        });
    outcome.kv = sequence.Contents(kCount);
    return outcome;
  }

  // Right, and on so many devices in the end after so many were lost.
  void ExpectRuns(int64_t devices, int64_t lost) {
    const Outcome& expected = Resident(kCount, kForm, 1);
    const Outcome outcome = Run();
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    ExpectLogitsAgree(outcome.logits, expected.logits);
    if (devices == 1) {
      EXPECT_EQ(outcome.kv, expected.kv);
    } else {
      ExpectKvAgrees(outcome.kv, expected.kv);
    }
    EXPECT_EQ(prefill_->run_counters().devices, devices);
    EXPECT_EQ(prefill_->run_counters().lost_devices, lost);
    for (const auto& member : members_) {
      const bool left_behind = member->host.use_count() > 2;  // test and prefill_
      EXPECT_TRUE(left_behind || member->host->device.memory_used() == 0);
    }
  }

  double timeout_seconds_ = 30;  // sanitizers are slow
  std::vector<std::unique_ptr<Member>> members_;
  std::unique_ptr<MultiDevicePrefill> prefill_;
};

TEST_F(MultiDevicePrefillTest, AllOfThemTogether) {
  AddDevices(3);
  ExpectRuns(3, 0);
  const StreamCounters counters = prefill_->run_counters();
  EXPECT_EQ(counters.runs, 1);
  EXPECT_GT(counters.streamed_bytes, 0);
  // What the formulas say.
  const ZigZagSplit split(0, kCount, 3);
  const std::vector<int64_t> rows = {split.Rows(0), split.Rows(1), split.Rows(2)};
  int64_t bytes = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const roofline::ExpertTraffic experts = roofline::SmallEpTraffic(spec(), rows, rank);
    bytes += spec().num_layers * roofline::RingTraffic(spec().kv_dim(), rows, rank).sent +
             (spec().num_layers - spec().first_dense_layers) * (experts.dispatch.sent + experts.combine.sent);
  }
  EXPECT_EQ(counters.link_bytes, bytes);
}

TEST_F(MultiDevicePrefillTest, OneDeviceIsThatDevice) {
  AddDevices(1);
  ExpectRuns(1, 0);
  EXPECT_EQ(prefill_->run_counters().link_bytes, 0);
}

TEST_F(MultiDevicePrefillTest, TheTimelineHasAProcessForEachDevice) {
  AddDevices(2);
  ExpectRuns(2, 0);
  const std::string path = testing::TempDir() + "prompt_devices_trace.json";
  ASSERT_TRUE(prefill_->WriteTrace(path).ok());
  std::ifstream file(path);
  const auto trace = nlohmann::json::parse(file);
  std::vector<std::string> processes;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") processes.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(processes, testing::ElementsAre("rank 0: host 0", "rank 1: host 1"));
  std::remove(path.c_str());
}

TEST_F(MultiDevicePrefillTest, GoesOnWithoutADeviceThatFailsAndTriesItAgainNextTime) {
  AddDevices(3);
  On(1, "run: experts", [] { return absl::DataLossError("a bit fell over"); });
  ExpectRuns(2, 1);
  Heal(1);
  ExpectRuns(3, 0);
  On(0, "copy", []() -> absl::Status { throw std::runtime_error("lost its head"); });
  ExpectRuns(2, 1);
}

TEST_F(MultiDevicePrefillTest, OneThatIsLeftComputesAloneAndNoneIsAnError) {
  AddDevices(2);
  On(0, "run: experts", [] { return absl::DataLossError("a bit fell over"); });
  ExpectRuns(1, 1);
  On(1, "run: experts", [] { return absl::InternalError("another one"); });
  const Outcome outcome = Run();
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_TRUE(outcome.logits.empty());
}

TEST_F(MultiDevicePrefillTest, OneThatHangsSitsOutUntilItLetsGo) {
  timeout_seconds_ = 1;
  AddDevices(3);
  std::atomic<bool> over = false;
  On(1, "run: experts", [&] {
    over.wait(false);
    return absl::OkStatus();
  });
  ExpectRuns(2, 1);
  EXPECT_GT(members_[1]->host->device.memory_used(), 0);
  ExpectRuns(2, 0);
  over = true;
  over.notify_all();
  while (members_[1]->host.use_count() > 2) std::this_thread::yield();  // its own and prefill_'s
  ExpectRuns(3, 0);
}

TEST_F(MultiDevicePrefillTest, AnInterruptionIsNobodysFault) {
  AddDevices(2);
  int64_t layers = 0;
  const Outcome outcome = Run([&] { return layers > 0 ? absl::CancelledError("the client left") : absl::OkStatus(); },
                              {.on_layer = [&](IndexRange, int64_t) { ++layers; }});
  EXPECT_EQ(outcome.status, absl::CancelledError("the client left"));
  EXPECT_EQ(prefill_->run_counters().lost_devices, 0);
  ExpectRuns(2, 0);
}

TEST_F(MultiDevicePrefillTest, WhatDoesNotFitTogetherIsComputedInPasses) {
  AddDevices(2);
  std::vector<device::Memory> occupied;  // but for passes of 100 rows
  for (const auto& member : members_) {
    const int64_t pass = kLimits.dense_bytes + 2 * SlotBytes(engine::ListModules(spec(), weights_, kForm, kDense / 4)) +
                         member->compute.ActivationBytes(100);
    occupied.push_back(member->host->memory->Allocate(kDeviceBytes - pass, "something else").value());
  }
  const Outcome& expected = Resident(kCount, kForm, 1);
  const Outcome outcome = Run();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.kv, expected.kv);
  EXPECT_GT(prefill_->run_counters().passes, 1);
  EXPECT_TRUE(prefill_->CheckFits({0, kCount}, kForm).ok());
}

TEST_F(MultiDevicePrefillTest, BorrowsForWholeMachinePromptsOnly) {
  AddDevices(1, 1);
  LentDevice& owner = *members_[1]->owner;
  ExpectRuns(1, 0);
  prefill_->UseWholeMachine(true);
  ExpectRuns(2, 0);
  EXPECT_TRUE(owner.Claim());  // it was given back
  ExpectRuns(1, 0);
  owner.Return();
  prefill_->UseWholeMachine(false);
  ExpectRuns(1, 0);
}

TEST_F(MultiDevicePrefillTest, GivesABorrowedDeviceBackWhenItIsWantedAndGoesOn) {
  AddDevices(1, 1);
  LentDevice& owner = *members_[1]->owner;
  prefill_->UseWholeMachine(true);
  std::atomic<bool> wanted = false;
  On(1, "run: route", [&] {
    if (wanted.exchange(true)) return absl::OkStatus();
    EXPECT_FALSE(owner.Claim());
    return absl::OkStatus();
  });
  // The one that is left waits for the owner to have it: the prompt is not done before.
  On(0, "run: head", [&] {
    while (!owner.Claim()) std::this_thread::yield();
    return absl::OkStatus();
  });
  ExpectRuns(1, 1);
  EXPECT_TRUE(wanted);
}

TEST_F(MultiDevicePrefillTest, WithNoDeviceToBeHadSaysSo) {
  AddDevices(0, 1);
  EXPECT_TRUE(absl::IsUnavailable(prefill_->CheckFits({0, kCount}, kForm)));
  EXPECT_TRUE(absl::IsUnavailable(Run().status));
}

}  // namespace
}  // namespace moestro::prefill
