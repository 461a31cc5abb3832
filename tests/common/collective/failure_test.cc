// A rank that fails, leaves, dies or stalls fails the operation on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/collective/ranks.h"

namespace moestro::collective {
namespace {

using testing::HasSubstr;

TEST(SharedFailure, OneRanksFailureIsEverybodys) {
  RunRanks(3, 64, [](Rank& rank) {
    if (rank->rank() == 1) rank->Fail(absl::DataLossError("a page is gone"));
    for (int i = 0; i < 2; ++i) {  // and stays so
      const absl::Status status = rank->Barrier(rank.call());
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(status.message(), HasSubstr("rank 1: a page is gone"));
      EXPECT_EQ(rank->failed_rank(), 1);
    }
    if (rank->rank() == 2) rank->Fail(absl::InternalError("later"));
  });
}

// Repeated, because the other ranks detect the failure at about the same time.
TEST(SharedFailure, ARankThatLeft) {
  for (int i = 0; i < 100; ++i) {
    RunRanks(3, 64, [](Rank& rank) {
      if (rank->rank() == 2) return;
      const absl::Status status = rank->Barrier(rank.call());
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(status.message(), HasSubstr("rank 2 is gone"));
      EXPECT_EQ(rank->failed_rank(), 2);
    });
  }
}

// A rank is killed while it writes the failure: others must not see success.
TEST(SharedFailure, AFailureThatIsNeverWrittenDown) {
  SteppedClock clock;
  const HeapRegion memory(2, 64);
  memory.region().header().failure = 1;
  { const Rank left(memory.region(), 1, {.clock = &clock}); }
  Rank rank(memory.region(), 0, {.timeout_seconds = 4, .clock = &clock});
  const absl::Status status = rank->Barrier(rank.call());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 1 is gone"));
  EXPECT_EQ(rank->failed_rank(), -1);
}

// It leaves when its part is done; its data still arrives.
TEST(SharedFailure, LeavingAfterTheLastOperationIsNoFailure) {
  for (int i = 0; i < 50; ++i) {
    RunRanks(2, 64, [](Rank& rank) {
      std::vector<uint8_t> own(60);
      std::vector<uint8_t> other(60);
      const int64_t sends = rank->rank() == 0 ? 60 : 0;
      EXPECT_TRUE(rank->Ring(rank.call(), {own.data(), sends}, {other.data(), 60 - sends}).ok());
    });
  }
}

TEST(SharedFailure, AStalledRankIsWaitedForSoLong) {
  SteppedClock clock;
  const HeapRegion memory(3, 64);
  Rank came(memory.region(), 1, {.clock = &clock});
  came.stopped = true;
  EXPECT_EQ(came->Barrier(came.call()).code(), absl::StatusCode::kCancelled);
  Rank rank(memory.region(), 0, {.timeout_seconds = 4, .clock = &clock});
  EXPECT_EQ(rank->failed_rank(), -1);
  const absl::Status status = rank->Barrier(rank.call());  // 2 never comes
  EXPECT_EQ(rank->failed_rank(), 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 2 has shown no sign of life for 4.0 s"));
  EXPECT_NEAR(clock.Now(), 4, 0.01);
}

TEST(SharedFailure, ASlowRankThatBeatsIsWaitedFor) {
  SteppedClock clock;
  const HeapRegion memory(2, 64);
  Rank slow(memory.region(), 1, {.clock = &clock});
  int beats = 0;
  double last_beat = 0;
  clock.on_sleep = [&] {  // at each of its steps, 3 seconds apart
    if (beats >= 5 || clock.Now() < last_beat + 3) return;
    slow->Beat();
    ++beats;
    last_beat = clock.Now();
  };
  std::thread other([&] {
    Rank rank(memory.region(), 0, {.timeout_seconds = 4, .clock = &clock});
    EXPECT_EQ(rank->Barrier(rank.call()).code(), absl::StatusCode::kDeadlineExceeded);
  });
  other.join();
  EXPECT_EQ(beats, 5);
  EXPECT_NEAR(clock.Now(), 5 * 3 + 4, 0.1);
}

TEST(SharedFailure, RanksThatDisagreeOnSizesOrOperations) {
  RunRanks(2, 64, [](Rank& rank) {
    std::vector<uint8_t> block(100);
    const absl::Status status = rank->Ring(rank.call(), {block.data(), 50}, {block.data(), 51});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("sends 50 bytes in operation 1"));
  });
}

TEST(SharedFailure, AStoppedRankReturns) {
  const HeapRegion memory(2, 64);
  Rank rank(memory.region(), 0, {});
  rank.stopped = true;
  EXPECT_EQ(rank->Barrier(rank.call()).code(), absl::StatusCode::kCancelled);
}

TEST(SharedFailure, ALongMessageIsCut) {
  RunRanks(2, 64, [](Rank& rank) {
    if (rank->rank() == 0) rank->Fail(absl::InternalError(std::string(1000, 'x')));
    const absl::Status status = rank->Barrier(rank.call());
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_LT(status.message().size(), 300u);
  });
}

}  // namespace
}  // namespace moestro::collective
