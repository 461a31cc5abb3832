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
    prefill_ = std::make_unique<MultiDevicePrefill>(
        spec(), weights_, devices,
        MultiDevicePrefill::Options{
            .limits = kLimits, .experts = experts_, .timeout_seconds = timeout_seconds_, .peers = peers_});
  }

  // Operations of that name on the device do this first.
  void On(int device, const std::string& operation, std::function<absl::Status()> what) {
    members_[static_cast<size_t>(device)]->host->device.set_fault(
        [=](const std::string& name) { return name == operation ? what() : absl::OkStatus(); });
  }
  void Heal(int device) {
    On(device, "", [] { return absl::OkStatus(); });
  }

  // cached: tokens that the resident engine computes before.
  Outcome Run(absl::FunctionRef<absl::Status()> interrupted = model::NeverInterrupted, const StreamEvents& events = {},
              int64_t cached = 0) {
    const model::TestSequence sequence(spec(), kCount);
    const kv::KvPages pages[] = {sequence.pages()};
    const std::vector<int32_t> tokens = Tokens(kCount);
    const std::vector<model::EngineRow> rows = Rows(tokens, 1);
    if (cached > 0) FillCache(rows, {.form = kForm, .cached = cached}, pages);
    Outcome outcome;
    outcome.status = prefill_->Run(std::span(rows).subspan(static_cast<size_t>(cached)), pages, kForm, interrupted,
                                   events, [&](int64_t row, std::span<const float> logits) {
                                     EXPECT_EQ(row, kCount - cached - 1);
                                     outcome.logits.emplace_back(logits.begin(), logits.end());
                                   });
    outcome.kv = sequence.Contents(kCount);
    return outcome;
  }

  void ExpectAgreesWithTheEngine(const Outcome& outcome) {
    const Outcome& expected = Resident(kCount, kForm, 1);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    ExpectLogitsAgree(outcome.logits, expected.logits);
    ExpectKvAgrees(outcome.kv, expected.kv);
  }

  // Leaves every device memory for passes of about so many rows on one.
  void Occupy(int64_t rows) {
    for (const auto& member : members_) {
      const int64_t pass = kLimits.dense_bytes +
                           2 * SlotBytes(engine::ListModules(spec(), weights_, kForm, kDense / 4)) +
                           member->compute.ActivationBytes(rows);
      occupied_.push_back(member->host->memory->Allocate(kDeviceBytes - pass, "something else").value());
    }
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

  // It has the bits of ranks with these shares.
  void ExpectIsOf(const Outcome& outcome, const std::vector<int64_t>& shares) {
    const Outcome expected =
        Distributed(kCount, {.ranks = static_cast<int>(shares.size()), .form = kForm, .logits = 1, .shares = shares});
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(model::SameBits(outcome.logits, expected.logits));
    EXPECT_EQ(outcome.kv, expected.kv);
    EXPECT_NE(outcome.kv,
              Distributed(kCount, {.ranks = static_cast<int>(shares.size()), .form = kForm, .logits = 1}).kv)
        << "of equal shares";
  }

  double timeout_seconds_ = 30;  // sanitizers are slow
  bool peers_ = false;
  roofline::ExpertParallelism experts_ = roofline::ExpertParallelism::kSmall;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<device::Memory> occupied_;
  std::unique_ptr<MultiDevicePrefill> prefill_;
};

TEST_F(MultiDevicePrefillTest, AllOfThemTogether) {
  AddDevices(3);
  ExpectRuns(3, 0);
  const StreamCounters counters = prefill_->run_counters();
  EXPECT_EQ(counters.runs, 1);
  EXPECT_GT(counters.streamed_bytes, 0);
  // What the formulas say.
  const ZigZagSplit split(0, kCount, ProportionalParts::Even(3));
  const std::vector<int64_t> rows = {split.Rows(0), split.Rows(1), split.Rows(2)};
  int64_t bytes = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const roofline::ExpertTraffic experts = roofline::SmallEpTraffic(spec(), rows, rank);
    bytes += spec().num_layers * roofline::RingTraffic(spec().kv_dim(), rows, rank).sent +
             (spec().num_layers - spec().first_dense_layers) * (experts.dispatch.sent + experts.combine.sent);
  }
  EXPECT_EQ(counters.link_bytes, bytes);
}

// A row goes to its experts only: other bytes on the links, the same tokens.
TEST_F(MultiDevicePrefillTest, StandardExpertParallelism) {
  AddDevices(3);
  ExpectRuns(3, 0);
  const int64_t small = prefill_->run_counters().link_bytes;
  experts_ = roofline::ExpertParallelism::kStandard;
  AddDevices(3);
  ExpectRuns(3, 0);
  EXPECT_GT(prefill_->run_counters().link_bytes, 0);
  EXPECT_NE(prefill_->run_counters().link_bytes, small);
}

TEST_F(MultiDevicePrefillTest, SharesOfTheDevicesThatTakePart) {
  AddDevices(2, 1);
  prefill_->SetShares(std::vector<int64_t>{4, 1, 2});
  ExpectIsOf(Run(), {4, 1});
  prefill_->UseWholeMachine(true);
  ExpectIsOf(Run(), {4, 1, 2});
}

TEST_F(MultiDevicePrefillTest, SharesOfTheDevicesThatAreLeft) {
  AddDevices(3);
  prefill_->SetShares(std::vector<int64_t>{4, 2, 1});
  On(1, "run: experts", [] { return absl::DataLossError("a bit fell over"); });
  ExpectIsOf(Run(), {4, 1});
  EXPECT_EQ(prefill_->run_counters().lost_devices, 1);
  Heal(1);
  ExpectIsOf(Run(), {4, 2, 1});
}

// A device with little memory and a small share does not make passes shorter.
TEST_F(MultiDevicePrefillTest, ADeviceHasRoomForItsOwnShare) {
  experts_ = roofline::ExpertParallelism::kStandard;
  AddDevices(2);
  const auto passes = [&](const std::vector<int64_t>& shares) {
    prefill_->SetShares(shares);
    return prefill_->PassesTogether({0, kCount}, kForm, 2);
  };
  Occupy(200);
  occupied_.erase(occupied_.begin());  // the second one's is left
  EXPECT_GT(passes({1, 1}), 1);
  EXPECT_EQ(passes({5, 1}), 1);
}

TEST_F(MultiDevicePrefillTest, OneDeviceIsThatDevice) {
  AddDevices(1);
  ExpectRuns(1, 0);
  EXPECT_EQ(prefill_->run_counters().link_bytes, 0);
}

TEST_F(MultiDevicePrefillTest, TheTimelineHasAProcessForEachDevice) {
  AddDevices(2);
  ExpectRuns(2, 0);
  const std::string path = testing::TempDir() + "prompt_devices_trace-" + std::to_string(getpid()) + ".json";
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
  EXPECT_GE(prefill_->run_counters().repeated_layers, spec().first_dense_layers);
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
  timeout_seconds_ = 3;  // on a busy machine the others, too, may stand still for a second
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

// From device to device as through the host's memory: whatever the path, the same bits.
TEST_F(MultiDevicePrefillTest, DevicesThatCopyFromEachOther) {
  peers_ = true;
  AddDevices(2);
  EXPECT_TRUE(prefill_->exchanges_by_peers());
  prefill_->SetShares(std::vector<int64_t>{4, 1});
  ExpectIsOf(Run(), {4, 1});
  EXPECT_GT(prefill_->run_counters().link_bytes, 0);
}

// The device that cannot copy is not lost: the host's memory does it from now on.
TEST_F(MultiDevicePrefillTest, ExchangesThroughTheHostWhereACopyBetweenDevicesFails) {
  peers_ = true;
  AddDevices(3);
  prefill_->SetShares(std::vector<int64_t>{4, 2, 1});
  std::atomic<int> copies = 0;
  On(1, "copy from peer", [&] { return ++copies > 5 ? absl::InternalError("a bad cable") : absl::OkStatus(); });
  ExpectIsOf(Run(), {4, 2, 1});
  EXPECT_EQ(prefill_->run_counters().lost_devices, 0);
  EXPECT_EQ(prefill_->run_counters().devices, 3);
  EXPECT_GT(copies, 5);
  EXPECT_FALSE(prefill_->exchanges_by_peers());
  copies = 0;
  ExpectIsOf(Run(), {4, 2, 1});
  EXPECT_EQ(copies, 0);
}

// It reads the others' memory, so they wait for it. What is computed elsewhere meanwhile does not.
TEST_F(MultiDevicePrefillTest, OneThatHangsInACopyKeepsThoseThatItReads) {
  timeout_seconds_ = 3;  // as above
  peers_ = true;
  AddDevices(2);
  std::atomic<bool> over = false;
  On(1, "copy from peer", [&] {
    over.wait(false);
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsUnavailable(Run().status));
  EXPECT_FALSE(prefill_->idle());
  for (const auto& member : members_) EXPECT_GT(member->host->device.memory_used(), 0);
  over = true;
  over.notify_all();
  while (!prefill_->idle()) std::this_thread::yield();
  for (const auto& member : members_) {
    while (member->host.use_count() > 2) std::this_thread::yield();
    EXPECT_EQ(member->host->device.memory_used(), 0);
  }
  Heal(1);
  const Outcome outcome = Run();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(prefill_->run_counters().devices, 2);
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

// Passes x ranks x what is cached. Any number of rows have logits so, too.
TEST_F(MultiDevicePrefillTest, WhatDoesNotFitAtOnceIsComputedInPasses) {
  for (const std::vector<int64_t>& shares : {std::vector<int64_t>{1, 1}, {1, 1, 1}, {3, 2}, {1, 4, 2}}) {
    const auto ranks = static_cast<int>(shares.size());
    for (const int64_t rows : {100, 150}) {
      members_.clear();
      AddDevices(ranks);
      prefill_->SetShares(shares);
      Occupy(rows);
      for (const int64_t cached : {0, 64, 100}) {
        SCOPED_TRACE(testing::Message() << testing::PrintToString(shares) << ", memory for " << rows << " rows, "
                                        << cached << " cached");
        std::vector<IndexRange> passes;
        std::vector<float> residuals(static_cast<size_t>((kCount - cached) * spec().hidden_size));
        const StreamEvents events{.on_pass = [&](IndexRange pass) { passes.push_back(pass); }, .residuals = residuals};
        const Outcome outcome = Run(model::NeverInterrupted, events, cached);
        ExpectAgreesWithTheEngine(outcome);
        EXPECT_EQ(prefill_->run_counters().devices, ranks);
        EXPECT_EQ(prefill_->run_counters().passes, std::ssize(passes));
        EXPECT_EQ(prefill_->PassesTogether({cached, kCount}, kForm, ranks), std::ssize(passes));
        EXPECT_GT(passes.size(), 1u);
        int64_t end = 0;
        for (const IndexRange& pass : passes) EXPECT_EQ(pass.begin, std::exchange(end, pass.end));
        EXPECT_EQ(end, kCount - cached);
        EXPECT_TRUE(prefill_->CheckFits({cached, kCount}, kForm).ok());
        if (cached == 0) ExpectLogitsAgree(LogitsOf(residuals, kCount), Resident(kCount, kForm, kCount).logits);
      }
      occupied_.clear();
    }
  }
}

// Ranks hold keys and values of all positions, so with a longer prompt one device is left, in passes of its own.
TEST_F(MultiDevicePrefillTest, WhatNeverFitsTogetherIsComputedOnOneDevice) {
  AddDevices(2);
  Occupy(18);
  const Outcome outcome = Run();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.kv, Resident(kCount, kForm, 1).kv);
  EXPECT_EQ(prefill_->run_counters().devices, 1);
  EXPECT_EQ(prefill_->PassesTogether({0, kCount}, kForm, 2), 0);
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
  ExpectAgreesWithTheEngine(Run());
  EXPECT_EQ(prefill_->run_counters().devices, 1);
  EXPECT_EQ(prefill_->run_counters().lost_devices, 1);
  EXPECT_TRUE(wanted);
}

// In any layer, on one device or two, in one pass or several: no layer is begun again, and each is done once.
TEST_F(MultiDevicePrefillTest, ADeviceThatIsTakenBackCostsNoLayer) {
  for (const int own : {1, 2}) {
    for (const int64_t occupied : {0, 150}) {
      for (int at = 0; at < 3; ++at) {
        SCOPED_TRACE(testing::Message() << own << " own, occupied: " << occupied << ", before attention " << at);
        members_.clear();
        AddDevices(own, 1);
        if (occupied > 0) Occupy(occupied);
        prefill_->UseWholeMachine(true);
        LentDevice& owner = *members_.back()->owner;
        std::atomic<int> attended = 0;
        On(own, "run: project keys and values", [&] {
          if (attended++ == at) {
            EXPECT_FALSE(owner.Claim());
          }
          return absl::OkStatus();
        });
        std::vector<std::pair<int64_t, int64_t>> layers;  // of each pass
        const StreamEvents events{
            .on_layer = [&](IndexRange rows, int64_t layer) { layers.emplace_back(rows.begin, layer); }};
        ExpectAgreesWithTheEngine(Run(model::NeverInterrupted, events));
        const StreamCounters counters = prefill_->run_counters();
        const bool taken = counters.lost_devices > 0;
        EXPECT_TRUE(taken || at == 2) << "in the last layer it may be too late";
        EXPECT_EQ(counters.lost_devices, taken ? 1 : 0);
        if (occupied == 0) {
          EXPECT_EQ(counters.devices, taken ? own : own + 1);
        } else {
          EXPECT_LE(counters.devices, own) << "what is left of a pass may fit one only";
        }
        EXPECT_EQ(counters.repeated_layers, 0);
        if (occupied == 0) {
          ASSERT_EQ(std::ssize(layers), spec().num_layers);
          for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
            EXPECT_EQ(layers[static_cast<size_t>(layer)], std::pair(int64_t{0}, layer));
          }
        }
        EXPECT_TRUE(owner.Claim());
        owner.Return();
        occupied_.clear();
      }
    }
  }
}

// Residuals that were asked for are there whoever ends the run.
TEST_F(MultiDevicePrefillTest, LogitsOfEveryRowAfterADeviceWasTakenBack) {
  AddDevices(1, 1);
  prefill_->UseWholeMachine(true);
  LentDevice& owner = *members_[1]->owner;
  On(1, "run: route", [&] {
    owner.Claim();
    return absl::OkStatus();
  });
  std::vector<float> residuals(static_cast<size_t>(kCount * spec().hidden_size));
  ExpectAgreesWithTheEngine(Run(model::NeverInterrupted, {.residuals = residuals}));
  EXPECT_EQ(prefill_->run_counters().lost_devices, 1);
  ExpectLogitsAgree(LogitsOf(residuals, kCount), Resident(kCount, kForm, kCount).logits);
}

TEST_F(MultiDevicePrefillTest, WithNoDeviceToBeHadSaysSo) {
  AddDevices(0, 1);
  EXPECT_TRUE(absl::IsUnavailable(prefill_->CheckFits({0, kCount}, kForm)));
  EXPECT_TRUE(absl::IsUnavailable(Run().status));
}

}  // namespace
}  // namespace moestro::prefill
