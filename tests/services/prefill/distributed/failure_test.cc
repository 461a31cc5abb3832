// A rank that fails, stalls or is interrupted ends the run on all of them; then all memory is back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>

#include "tests/services/prefill/distributed/distributed_fixture.h"
#include "tests/support/hang.h"

namespace moestro::prefill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The machine's clock, from the moment at which a test lets it go.
class HeldClock final : public device::Clock {
 public:
  double Now() const override {
    const double begin = begin_;
    return begin == kHeld ? 0 : clock_.Now() - begin;
  }
  void SleepUntil(double) const override { clock_.SleepUntil(clock_.Now() + 1e-4); }
  void Go() {
    double held = kHeld;
    begin_.compare_exchange_strong(held, clock_.Now());
  }

 private:
  static constexpr double kHeld = -1;
  const device::Clock& clock_ = device::SteadyClock();
  std::atomic<double> begin_ = kHeld;
};

class DistributedFailureTest : public DistributedTest {
 protected:
  using Hosts = std::vector<std::shared_ptr<Host>>;
  // Ranks that are left behind use them until TearDown.
  HeldClock clock_;
  std::atomic<int> waiting_ = 0;
};

TEST_F(DistributedFailureTest, ARanksFailureIsNamedByAll) {
  for (const int bad : {0, 1, 2}) {
    const auto start = [&](Hosts& hosts) {
      hosts[static_cast<size_t>(bad)]->device.set_fault([](const std::string& what) {
        return what == "run: experts" ? absl::DataLossError("a bit fell over") : absl::OkStatus();
      });
    };
    const Outcome outcome = Distributed(300, {.ranks = 3}, model::NeverInterrupted, {}, start);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDataLoss) << outcome.status;
    EXPECT_THAT(outcome.status.message(), HasSubstr("a bit fell over"));
    EXPECT_THAT(outcome.status.message(), HasSubstr("rank " + std::to_string(bad)));
    EXPECT_THAT(failed_ranks_, ElementsAre(bad));
  }
}

// Wherever it comes from: a kernel, the loader, the rank's own thread, a copy from another rank.
TEST_F(DistributedFailureTest, AnExceptionIsTheRanksFailure) {
  for (const char* where : {"run: experts", "copy", "allocate", "launch", "event", "copy from peer"}) {
    const auto start = [&](Hosts& hosts) {
      hosts[1]->device.set_fault([&](const std::string& what) -> absl::Status {
        if (what == where) throw std::runtime_error("lost its head");
        return absl::OkStatus();
      });
    };
    const bool peers = where == std::string("copy from peer");
    const Outcome outcome = Distributed(300, {.ranks = 2, .peers = peers}, model::NeverInterrupted, {}, start);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInternal) << where << ": " << outcome.status;
    EXPECT_THAT(outcome.status.message(), HasSubstr("rank 1: ")) << where;
    EXPECT_THAT(outcome.status.message(), HasSubstr("lost its head")) << where;
    EXPECT_THAT(failed_ranks_, ElementsAre(1)) << where;
  }
}

TEST_F(DistributedFailureTest, AFailureAmongPeersGivesAllMemoryBack) {
  for (const char* where : {"run: experts", "copy from peer"}) {
    std::atomic<int> left = 3;
    const auto start = [&](Hosts& hosts) {
      hosts[1]->device.set_fault([&](const std::string& what) {
        return what == where && --left < 0 ? absl::DataLossError("a bit fell over") : absl::OkStatus();
      });
    };
    const Outcome outcome = Distributed(300, {.ranks = 3, .peers = true}, model::NeverInterrupted, {}, start);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDataLoss) << where << ": " << outcome.status;
    EXPECT_THAT(failed_ranks_, ElementsAre(1)) << where;
    EXPECT_EQ(copies_failed_, where == std::string("copy from peer")) << where;
  }
}

TEST_F(DistributedFailureTest, ARankThatIsTakenAwayIsTheOneAtFault) {
  std::atomic<int> asked = 0;
  const auto check = [&] { return ++asked > 20 ? absl::UnavailableError("decode took it back") : absl::OkStatus(); };
  const Outcome outcome = Distributed(700, {.ranks = 2, .check = check});
  EXPECT_TRUE(absl::IsUnavailable(outcome.status)) << outcome.status;
  EXPECT_THAT(outcome.status.message(), HasSubstr("decode took it back"));
  EXPECT_TRUE(outcome.logits.empty());
  EXPECT_EQ(failed_ranks_.size(), 1u);
}

TEST_F(DistributedFailureTest, ATooSmallDeviceFailsAllAtOnce) {
  const auto start = [](Hosts& hosts) {
    hosts[1]->device.set_fault([](const std::string& what) {
      return what == "allocate" ? absl::ResourceExhaustedError("no memory") : absl::OkStatus();
    });
  };
  // Without a time-out, whose error would be another one.
  const Outcome outcome =
      Distributed(300, {.ranks = 2, .timeout_seconds = kHangSeconds}, model::NeverInterrupted, {}, start);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
  EXPECT_THAT(outcome.status.message(), HasSubstr("rank 1"));
}

// The run does not wait for a device that hangs, and what that does later touches nothing of the run.
TEST_F(DistributedFailureTest, AStalledRankIsLeftBehind) {
  const auto over = std::make_shared<std::atomic<bool>>(false);  // the device looks at it when the test has ended
  const auto start = [&](Hosts& hosts) {
    hosts[1]->device.set_fault([over](const std::string& what) {
      if (what == "run: experts") over->wait(false);  // a device that hangs
      return absl::OkStatus();
    });
    // Their last kernel before they need the sums of rank 1. Before it, they may be slow.
    for (const int rank : {0, 2}) {
      hosts[static_cast<size_t>(rank)]->device.set_fault([this](const std::string& what) {
        if (what == "run: shared expert" && ++waiting_ == 2) clock_.Go();
        return absl::OkStatus();
      });
    }
  };
  const Outcome outcome =
      Distributed(300, {.ranks = 3, .timeout_seconds = 1, .clock = &clock_}, model::NeverInterrupted, {}, start);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded) << outcome.status;
  EXPECT_THAT(outcome.status.message(), HasSubstr("rank 1 has shown no sign of life for 1.0 s"));
  EXPECT_THAT(failed_ranks_, ElementsAre(1));
  *over = true;
  over->notify_all();
}

TEST_F(DistributedFailureTest, AnInterruptionReachesAllRanks) {
  int64_t layers = 0;
  const auto interrupted = [&] { return layers > 0 ? absl::CancelledError("the client left") : absl::OkStatus(); };
  const StreamEvents events{.on_layer = [&](IndexRange, int64_t) { ++layers; }};
  const Outcome outcome = Distributed(700, {.ranks = 3}, interrupted, events);
  EXPECT_EQ(outcome.status, absl::CancelledError("the client left"));
  EXPECT_TRUE(failed_ranks_.empty());
  EXPECT_LE(layers, spec().num_layers);
}

TEST_F(DistributedFailureTest, ReportsLayersAndTheEnd) {
  std::vector<int64_t> layers;
  int passes = 0;
  int beats = 0;
  const StreamEvents events{.on_layer = [&](IndexRange, int64_t layer) { layers.push_back(layer); },
                            .on_pass =
                                [&](IndexRange rows) {
                                  ++passes;
                                  EXPECT_EQ(rows, (IndexRange{0, 300}));
                                },
                            .on_step = [&] { ++beats; }};
  ASSERT_TRUE(Distributed(300, {.ranks = 2}, model::NeverInterrupted, events).status.ok());
  EXPECT_THAT(layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(passes, 1);
  EXPECT_GT(beats, 0);
}

// Each rank streams its own experts and nobody else's.
TEST_F(DistributedFailureTest, RanksShareTheExperts) {
  ASSERT_TRUE(Distributed(300, {.ranks = 1}).status.ok());
  const int64_t all = reports_[0].pipeline.counters.streamed_bytes;
  int64_t experts = 0;
  for (const engine::Module& module : engine::ListModules(spec(), weights_, model::MlaForm::kUnabsorbed, kDense / 4)) {
    int64_t bytes = 0;
    for (const engine::StagedRange& range : module.image.ranges) bytes += range.bytes;
    if (module.kind == engine::ModuleKind::kExpert) experts += bytes;
  }
  ASSERT_TRUE(Distributed(300, {.ranks = 2}).status.ok());
  EXPECT_EQ(reports_[0].pipeline.counters.streamed_bytes, all - experts / 2);  // and the head
}

}  // namespace
}  // namespace moestro::prefill
