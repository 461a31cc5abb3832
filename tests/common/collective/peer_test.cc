// Ranks that copy from each other's memory: what is exchanged, and who may free what when one fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tests/common/collective/ranks.h"
#include "tests/support/faulty_device.h"
#include "tests/support/hang.h"

namespace moestro::collective {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

TEST(PeerExchange, EveryOperationWithAnyRanksAndSizes) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const int64_t bytes : {0, 1, 64, 65, 5003}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << bytes << " bytes");
      RunPeers(ranks, [&](Rank& rank) {
        for (int i = 0; i < 3; ++i) EXPECT_EQ(ExchangeAll(*rank.communicator, rank.call(), bytes), absl::OkStatus());
      });
    }
  }
}

TEST(PeerExchange, CopiesEachByteOnceAndCountsIt) {
  RunPeers(2, [](Rank& rank) {
    const std::vector<uint8_t> own(1000, static_cast<uint8_t>(1 + rank->rank()));
    std::vector<uint8_t> other(1000);
    ASSERT_TRUE(rank->Ring(rank.call(), {own.data(), 1000}, {other.data(), 1000}).ok());
    EXPECT_EQ(other, std::vector<uint8_t>(1000, static_cast<uint8_t>(2 - rank->rank())));
    EXPECT_EQ(rank->counters(Operation::kRing).sent_bytes, 1000);
    EXPECT_EQ(rank->counters(Operation::kRing).received_bytes, 1000);
    EXPECT_EQ(rank->counters(Operation::kBarrier).calls, 0) << "those that it needs itself";
  });
}

// Blocks of more than a chunk, which are signs of life.
TEST(PeerExchange, LongBlocks) {
  constexpr int64_t kBytes = (int64_t{128} << 20) + 3;
  RunPeers(2, [](Rank& rank) {
    const int64_t sends = rank->rank() == 0 ? kBytes : 5;
    const std::vector<uint8_t> own = Message(rank->rank(), 0, sends);
    std::vector<uint8_t> other(static_cast<size_t>(kBytes + 5 - sends));
    ASSERT_TRUE(rank->Ring(rank.call(), {own.data(), sends}, {other.data(), std::ssize(other)}).ok());
    EXPECT_TRUE(other == Message(1 - rank->rank(), 0, std::ssize(other)));
  });
}

TEST(PeerFailure, OneRanksFailureIsEverybodys) {
  RunPeers(3, [](Rank& rank) {
    if (rank->rank() == 1) rank->Fail(absl::DataLossError("a page is gone"));
    for (int i = 0; i < 2; ++i) {  // and stays so
      EXPECT_THAT(ExchangeAll(*rank.communicator, rank.call(), 5).message(), HasSubstr("rank 1: a page is gone"));
      EXPECT_EQ(rank->failed_rank(), 1);
    }
  });
}

TEST(PeerFailure, ARankThatLeft) {
  for (int i = 0; i < 50; ++i) {
    RunPeers(3, [](Rank& rank) {
      if (rank->rank() == 2) return;
      const absl::Status status = ExchangeAll(*rank.communicator, rank.call(), 5);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(status.message(), HasSubstr("rank 2 is gone"));
      EXPECT_EQ(rank->failed_rank(), 2);
    });
  }
}

TEST(PeerFailure, AStalledRankIsWaitedForSoLong) {
  SteppedClock clock;
  PeerGroup group(2);
  Rank rank(group, 0, {.timeout_seconds = 4, .clock = &clock});
  const Rank stalled(group, 1, {.clock = &clock});
  EXPECT_EQ(rank->Barrier(rank.call()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(rank->failed_rank(), 1);
  EXPECT_NEAR(clock.Now(), 4, 0.01);
  EXPECT_FALSE(group.copies_failed());
}

TEST(PeerFailure, RanksThatDisagreeOnSizesOrOperations) {
  RunPeers(2, [](Rank& rank) {
    std::vector<uint8_t> block(100);
    const absl::Status status = rank->Ring(rank.call(), {block.data(), 50}, {block.data() + 50, 49});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(status.message(), HasSubstr("sends 50 bytes in operation 1, ring"));
  });
  RunPeers(2, [](Rank& rank) {
    std::vector<uint8_t> block(100);
    const SendBlock own{block.data(), 50};
    const std::vector<ReceiveBlock> from(2, {block.data() + 50, 50});
    const absl::Status status =
        rank->rank() == 0 ? rank->Ring(rank.call(), own, from[0]) : rank->AllGather(rank.call(), own, from);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(status.message(), AnyOf(HasSubstr("in operation 1, ring"), HasSubstr("in operation 1, all-gather")));
  });
}

TEST(PeerFailure, AStoppedRankReturns) {
  PeerGroup group(2);
  Rank rank(group, 0, {});
  rank.stopped = true;
  EXPECT_EQ(rank->Barrier(rank.call()).code(), absl::StatusCode::kCancelled);
}

// Two ranks, of which the second one's device does something before it copies from the first.
class TwoPeers {
 public:
  TwoPeers(const SharedOptions& options, std::function<absl::Status()> before_copy) : options_(options) {
    device_.set_fault([before_copy = std::move(before_copy)](const std::string& what) {
      return what == "copy from peer" ? before_copy() : absl::OkStatus();
    });
  }

  // The first rank's operation, after which it calls `returned`; then the second one's.
  std::pair<absl::Status, absl::Status> Exchange(const std::function<void()>& returned) {
    absl::Status second;
    std::atomic<bool> joined = false;
    std::thread other([&] {
      const auto stream = device_.NewStream("exchange").value();
      const auto communicator = JoinPeers(group_, 1, device_, options_).value();
      joined = true;
      joined.notify_all();
      std::vector<uint8_t> own(10, 2), from(10);
      const std::atomic<bool> stopped = false;
      second = communicator->Ring({*stream, stopped}, {own.data(), 10}, {from.data(), 10});
    });
    joined.wait(false);
    absl::Status first;
    {
      Rank rank(group_, 0, options_);
      std::vector<uint8_t> own(10, 1), from(10);
      first = rank->Ring(rank.call(), {own.data(), 10}, {from.data(), 10});
      returned();
    }
    other.join();
    return {first, second};
  }
  const PeerGroup& group() const { return group_; }

 private:
  std::unique_ptr<device::Device> host_ = device::NewHostDevice({});
  device::FaultyDevice device_{*host_};
  PeerGroup group_{2};
  const SharedOptions options_;
};

// Time passes while the thread that has made it sleeps, from the moment at which `begun` is true.
class FirstRanksClock final : public device::Clock {
 public:
  explicit FirstRanksClock(const std::atomic<bool>& begun) : begun_(begun) {}
  double Now() const override { return seconds_; }
  void SleepUntil(double seconds) const override {
    if (std::this_thread::get_id() != thread_) return std::this_thread::yield();
    begun_.wait(false);
    on_sleep();
    seconds_ = std::max(seconds_.load(), seconds);
  }
  mutable std::function<void()> on_sleep;

 private:
  const std::atomic<bool>& begun_;
  const std::thread::id thread_ = std::this_thread::get_id();
  mutable std::atomic<double> seconds_ = 0;
};

TEST(PeerFailure, ACopyThatFailsIsTheReadersAndTheGroupKnows) {
  TwoPeers peers({.timeout_seconds = kHangSeconds}, [] { return absl::DataLossError("a bad cable"); });
  const auto [first, second] = peers.Exchange([] {});
  for (const absl::Status& status : {first, second}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(status.message(), HasSubstr("a bad cable"));
  }
  EXPECT_TRUE(peers.group().copies_failed());
}

// The second rank hangs in a copy, and the first one gives it up; but its memory is still read.
TEST(PeerFailure, MemoryThatIsReadIsNotGivenBack) {
  std::atomic<bool> reads = false, over = false;
  const FirstRanksClock clock(reads);
  TwoPeers peers({.timeout_seconds = 4, .clock = &clock}, [&] {
    reads = true;
    reads.notify_all();
    over.wait(false);
    return absl::OkStatus();
  });
  absl::Status known;
  clock.on_sleep = [&] {  // long after the first has given up
    if (clock.Now() < 60 || over) return;
    known = peers.group().failure();
    EXPECT_EQ(peers.group().failed_rank(), 1);
    over = true;
    over.notify_all();
  };
  std::optional<bool> was_over;
  const auto [first, second] = peers.Exchange([&] { was_over = over.load(); });
  EXPECT_EQ(first.code(), absl::StatusCode::kDeadlineExceeded) << first;
  EXPECT_FALSE(second.ok());
  EXPECT_EQ(was_over, true);
  EXPECT_EQ(known.code(), absl::StatusCode::kDeadlineExceeded) << "others know it before: " << known;
  EXPECT_FALSE(peers.group().copies_failed());
}

TEST(CheckPeers, HostsReachEachOtherAndSayWhoDoesNot) {
  const auto first = device::NewHostDevice({}), second = device::NewHostDevice({});
  device::FaultyDevice faulty(*second);
  device::Device* const devices[] = {first.get(), &faulty};
  EXPECT_EQ(CheckPeers(devices), absl::OkStatus());
  EXPECT_EQ(first->memory_used() + second->memory_used(), 0);
  for (const char* what : {"reach peer", "copy from peer", "allocate"}) {
    faulty.set_fault([&](const std::string& operation) {
      return operation == what ? absl::UnavailableError("there is a bridge") : absl::OkStatus();
    });
    EXPECT_EQ(CheckPeers(devices), absl::UnavailableError("there is a bridge")) << what;
  }
}

}  // namespace
}  // namespace moestro::collective
