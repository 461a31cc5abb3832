// What a rank's device computes while exchanges are under way. An exchange is held up until the kernels that need not
// wait for it have been called: if these waited for it, the run would fail.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "common/base/mutex.h"
#include "tests/services/prefill/distributed/distributed_fixture.h"

namespace moestro::prefill {
namespace {

using collective::Operation;

// The kernels that a rank's device has called since the layer's last one of a kind.
class Progress {
 public:
  // `kernel`: as FaultyDevice names it.
  void Add(const std::string& kernel) {
    MutexLock lock(mutex_);
    for (auto& [since, called] : called_) {
      if (kernel == since) called.clear();
      called.insert(kernel);
    }
    changed_.notify_all();
  }

  // Until `kernel` has been called after the last `since`.
  absl::Status WaitFor(const std::string& kernel, const std::string& since) {
    constexpr std::chrono::seconds kPatience{60};  // only a run that is wrong needs it
    MutexLock lock(mutex_);
    const auto called = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return called_[since].contains(kernel); };
    if (changed_.wait_for(lock, kPatience, called)) return absl::OkStatus();
    return absl::DeadlineExceededError(kernel + " waits for an exchange");
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::map<std::string, std::set<std::string>> called_ ABSL_GUARDED_BY(mutex_) = {{"run: route", {}},
                                                                                  {"run: project keys and values", {}}};
};

class OverlapTest : public DistributedTest {
 protected:
  static constexpr int kRanks = 3;

  // A run whose exchanges wait for what `ask` says of each.
  void ExpectComputesMeanwhile(Ranks setting,
                               std::function<absl::Status(Progress& progress, Operation operation)> ask) {
    std::vector<Progress> progress(kRanks);
    setting.ranks = kRanks;
    setting.ask = [&](int rank, Operation operation) { return ask(progress[static_cast<size_t>(rank)], operation); };
    const auto watch = [&](std::vector<std::shared_ptr<Host>>& hosts) {
      for (size_t rank = 0; rank < hosts.size(); ++rank) {
        hosts[rank]->device.set_fault([&progress, rank](const std::string& what) {
          progress[rank].Add(what);
          return absl::OkStatus();
        });
      }
    };
    const Outcome outcome = Distributed(700, setting, model::NeverInterrupted, {}, watch);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    const Outcome& expected = Resident(700, setting.form, setting.logits);
    ExpectLogitsAgree(outcome.logits, expected.logits);
    ExpectKvAgrees(outcome.kv, expected.kv);
  }
};

// Of any ring: from one launch to all of a rank's experts come before the others' rows.
TEST_F(OverlapTest, ExpertsOfTheRanksOwnRowsWhileOthersArrive) {
  for (const int64_t slots : {2, 4, 8}) {
    ExpectComputesMeanwhile({.ring_slots = slots}, [](Progress& progress, Operation operation) {
      return operation == Operation::kAllGather ? progress.WaitFor("run: experts", "run: route") : absl::OkStatus();
    });
  }
}

// The last kernel before what arrives is added.
TEST_F(OverlapTest, TheSharedExpertWhileSumsArrive) {
  for (const int64_t slots : {2, 4, 8}) {
    ExpectComputesMeanwhile({.ring_slots = slots}, [](Progress& progress, Operation operation) {
      return operation == Operation::kAllToAll ? progress.WaitFor("run: shared expert", "run: route")
                                               : absl::OkStatus();
    });
  }
}

TEST_F(OverlapTest, AttentionToTheRanksOwnPartWhileTheRingPassesTheOthers) {
  for (const int64_t cached : {0, 100}) {
    ExpectComputesMeanwhile({.cached = cached}, [](Progress& progress, Operation operation) {
      return operation == Operation::kRing ? progress.WaitFor("run: attention", "run: project keys and values")
                                           : absl::OkStatus();
    });
  }
}

// Whoever is added up last comes last whatever is late: the bits are those of exchanges in no time.
TEST_F(OverlapTest, LateExchangesChangeNoBits) {
  for (const roofline::ExpertParallelism experts :
       {roofline::ExpertParallelism::kSmall, roofline::ExpertParallelism::kStandard}) {
    const Outcome expected = Distributed(300, {.ranks = kRanks, .experts = experts});
    for (int late = 0; late < kRanks; ++late) {
      const auto ask = [late](int rank, Operation) {
        for (int i = 0; rank == late && i < 1000; ++i) std::this_thread::yield();
        return absl::OkStatus();
      };
      const Outcome outcome = Distributed(300, {.ranks = kRanks, .experts = experts, .ask = ask});
      ASSERT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_TRUE(model::SameBits(outcome.logits, expected.logits));
      EXPECT_EQ(outcome.kv, expected.kv);
    }
  }
}

// An exchange that fails beside what is computed ends the run on all ranks.
TEST_F(OverlapTest, AnExchangesFailureIsItsRanks) {
  for (const Operation bad : {Operation::kAllGather, Operation::kAllToAll, Operation::kRing}) {
    const auto ask = [bad](int rank, Operation operation) {
      return rank == 1 && operation == bad ? absl::DataLossError("a cable fell out") : absl::OkStatus();
    };
    const Outcome outcome = Distributed(300, {.ranks = kRanks, .ask = ask});
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDataLoss) << outcome.status;
    EXPECT_EQ(failed_ranks_, std::vector<int>{1});
  }
}

// The time of exchanges, and how much of it the device had nothing else to do.
TEST_F(OverlapTest, TheTimelineHasExchangesAndWaits) {
  ASSERT_TRUE(Distributed(300, {.ranks = 2, .cached = 64}).status.ok());
  const int64_t layers = spec().num_layers, moe_layers = spec().num_moe_layers();
  for (const RankReport& report : reports_) {
    std::map<std::string, int64_t> counts;
    double seconds = 0;
    double begin = 0;
    for (const Span& span : report.pipeline.timeline.lanes[Timeline::kExchanges]) {
      ++counts[span.name];
      EXPECT_GE(span.begin, begin);  // one after the other
      EXPECT_GE(span.end, span.begin);
      begin = span.end;
      if (span.bytes > 0) seconds += span.end - span.begin;
    }
    EXPECT_EQ(counts, (std::map<std::string, int64_t>{{"ring", layers},
                                                      {"store", layers},
                                                      {"load prefix", layers},
                                                      {"read prefix", layers - 1},
                                                      {"dispatch", moe_layers},
                                                      {"combine", moe_layers}}));
    EXPECT_DOUBLE_EQ(report.pipeline.counters.exchange_seconds, seconds);
    EXPECT_GT(seconds, 0);
  }
}

}  // namespace
}  // namespace moestro::prefill
