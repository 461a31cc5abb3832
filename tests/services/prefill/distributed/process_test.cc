// Ranks that are processes: each maps the same KV memory and writes its own pages.
#include <gtest/gtest.h>

#include <cstring>

#include "common/platform/shared_memory.h"
#include "tests/common/platform/child_process.h"
#include "tests/common/platform/test_name.h"
#include "tests/services/prefill/distributed/distributed_fixture.h"
#include "tests/support/hang.h"

namespace moestro::prefill {
namespace {

using moestro::testing::ChildProcess;
using moestro::testing::TestName;

class RankProcessTest : public DistributedTest {
 protected:
  static constexpr int64_t kCount = 385;
  static constexpr int64_t kLogits = 1;

  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer cannot follow threads that a forked process starts";
#endif
  }

  // Where a rank is asked to wait before it goes on.
  using Pause = std::function<void(int rank, const Step& step, const ChildProcess::Parent& parent)>;

  RankProcessTest() {
    geometry_ = {.num_layers = spec().num_layers,
                 .kv_dim = spec().kv_dim(),
                 .kv_heads = spec().num_kv_heads,
                 .page_count = CeilDiv(kCount, kv::kPageTokens),
                 .lease_slots = 0};
    for (int64_t i = 0; i < geometry_.page_count; ++i) numbers_.push_back(static_cast<uint32_t>(i));
    memory_ = SharedMemory::Create(name_, LogitBytes() + geometry_.page_count * geometry_.page_bytes()).value();
  }

  int64_t LogitBytes() const { return RoundUp(spec().vocab_size * 4, 4096); }
  kv::KvPages Pages(uint8_t* memory) const { return {geometry_, memory + LogitBytes(), numbers_}; }

  // The same before an exchange, on the thread that does it.
  using ExchangePause = std::function<void(int rank, collective::Operation, const ChildProcess::Parent& parent)>;

  // In the child: exit code 0 and logits in shared memory, or the status code.
  int RunAsRank(int rank, int ranks, const ChildProcess::Parent& parent, const Pause& pause,
                const ExchangePause& exchange_pause, double timeout_seconds) {
    const SharedMemory region = SharedMemory::OpenWritable(region_name_).value();
    const SharedMemory kv = SharedMemory::OpenWritable(name_).value();
    Host host(spec(), weights_, 64);
    AskingCommunicator communicator(
        collective::JoinRegion(collective::Region::Open(region.data(), region.size()).value(), rank, host.device,
                               {.timeout_seconds = timeout_seconds})
            .value(),
        host.device, [&](collective::Operation operation) {
          exchange_pause(rank, operation, parent);
          return absl::OkStatus();
        });
    const std::vector<model::EngineRow> rows = Rows(Tokens(kCount), kLogits);
    const ZigZagSplit split(0, kCount, ProportionalParts::Even(ranks));
    const std::vector<model::EngineRow> own = RankRows(rows, split, rank);
    const RevocablePages pages(Pages(kv.data()));
    RankReport report;
    const absl::Status status =
        RunRank({&host.device, &host.kernels}, spec(), weights_, roofline::ExpertParallelism::kSmall,
                {&split, rank, own, &pages, model::MlaForm::kUnabsorbed}, {.dense_bytes = kDense}, communicator,
                {model::NeverInterrupted, [&](const Step& step) { pause(rank, step, parent); },
                 [&](int64_t, std::span<const float> logits) {
                   std::memcpy(kv.data(), logits.data(), logits.size() * sizeof(float));
                 }},
                &report);
    return static_cast<int>(status.code());
  }

  void Start(int ranks, const Pause& pause, const ExchangePause& exchange_pause = DoNotPauseExchanges,
             double timeout_seconds = kHangSeconds) {
    children_.clear();
    region_ = SharedMemory();
    SharedMemory::Unlink(region_name_).IgnoreError();
    region_ = SharedMemory::Create(region_name_, collective::Region::Bytes(ranks)).value();
    ASSERT_TRUE(collective::Region::Format(region_.data(), ranks).ok());
    for (int rank = 0; rank < ranks; ++rank) {
      children_.push_back(std::make_unique<ChildProcess>([=, this](const ChildProcess::Parent& parent) {
        return RunAsRank(rank, ranks, parent, pause, exchange_pause, timeout_seconds);
      }));
    }
  }

  static void DoNotPause(int, const Step&, const ChildProcess::Parent&) {}
  static void DoNotPauseExchanges(int, collective::Operation, const ChildProcess::Parent&) {}

  // Only silence needs a time-out: a death is seen at once.
  static double TimeoutFor(int signal) { return signal == SIGKILL ? kHangSeconds : 3; }

  // Rank 1 of three has told that it pauses: its death, or its silence, ends the others.
  void ExpectOthersEnd(int signal) {
    ASSERT_EQ(children_[1]->Receive(), 1);
    if (signal == SIGKILL) {
      children_[1]->Kill();
    } else {
      kill(children_[1]->pid(), SIGSTOP);
    }
    const auto expected = signal == SIGKILL ? absl::StatusCode::kUnavailable : absl::StatusCode::kDeadlineExceeded;
    EXPECT_EQ(children_[0]->Wait(), static_cast<int>(expected));
    EXPECT_EQ(children_[2]->Wait(), static_cast<int>(expected));
  }

  std::vector<uint16_t> Contents() const {
    std::vector<uint16_t> contents;
    const kv::KvPages pages = Pages(memory_.data());
    for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
      for (int64_t t = 0; t < kCount; ++t) {
        std::vector<uint16_t> entry(static_cast<size_t>(spec().kv_dim()));
        pages.Read(layer, t, entry.data());
        contents.insert(contents.end(), entry.begin(), entry.end());
      }
    }
    return contents;
  }

  TestName name_{"distributed-kv"};
  TestName region_name_{"distributed-region"};
  kv::KvGeometry geometry_;
  std::vector<uint32_t> numbers_;
  SharedMemory memory_;
  SharedMemory region_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
};

// A test that forks must have no threads: the resident engine's run after the children's.
TEST_F(RankProcessTest, AgreeWithOneDevice) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    Start(ranks, DoNotPause);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(children_[static_cast<size_t>(rank)]->Wait(), 0) << rank;
    const Outcome& expected = Resident(kCount, model::MlaForm::kUnabsorbed, kLogits);
    ExpectKvAgrees(Contents(), expected.kv);
    std::vector<float> logits(static_cast<size_t>(spec().vocab_size));
    std::memcpy(logits.data(), memory_.data(), logits.size() * sizeof(float));
    ExpectLogitsAgree({logits}, expected.logits);
  }
}

TEST_F(RankProcessTest, AKilledOrStoppedRankFailsTheOthers) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const auto pause = [](int rank, const Step& step, const ChildProcess::Parent& parent) {
      if (rank != 1 || step.kind != engine::StepKind::kRoute) return;
      parent.Send(1);
      parent.Sleep();
    };
    Start(3, pause, DoNotPauseExchanges, TimeoutFor(signal));
    ExpectOthersEnd(signal);
  }
}

// While the others' exchange is under way, and all ranks compute beside it.
TEST_F(RankProcessTest, ARankKilledOrStoppedInAnExchangeFailsTheOthers) {
  for (const auto operation :
       {collective::Operation::kRing, collective::Operation::kAllGather, collective::Operation::kAllToAll}) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      SCOPED_TRACE(::testing::Message() << collective::OperationName(operation) << ", signal " << signal);
      const auto pause = [=](int rank, collective::Operation at, const ChildProcess::Parent& parent) {
        if (rank != 1 || at != operation) return;
        parent.Send(1);
        parent.Sleep();
      };
      Start(3, DoNotPause, pause, TimeoutFor(signal));
      ExpectOthersEnd(signal);
    }
  }
}

}  // namespace
}  // namespace moestro::prefill
