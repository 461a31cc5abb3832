// Ranks as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/platform/shared_memory.h"
#include "tests/common/collective/ranks.h"
#include "tests/common/platform/child_process.h"
#include "tests/common/platform/test_name.h"
#include "tests/support/hang.h"

namespace moestro::collective {
namespace {

using moestro::testing::ChildProcess;
using moestro::testing::TestName;

constexpr int64_t kSlotBytes = 1000;

// A group's named memory, and its ranks as children.
class Processes {
 public:
  Processes(int ranks, const std::function<int(Rank& rank, const ChildProcess::Parent& parent)>& body,
            double timeout_seconds = kHangSeconds)
      : name_("collective"), memory_(SharedMemory::Create(name_, Region::Bytes(ranks, kSlotBytes)).value()) {
    EXPECT_TRUE(Region::Format(memory_.data(), ranks, kSlotBytes).ok());
    for (int r = 0; r < ranks; ++r) {
      children_.push_back(std::make_unique<ChildProcess>([=, this](const ChildProcess::Parent& parent) {
        const SharedMemory mapped = SharedMemory::OpenWritable(name_).value();
        Rank rank(Region::Open(mapped.data(), mapped.size()).value(), r, {.timeout_seconds = timeout_seconds});
        return body(rank, parent);
      }));
    }
  }
  ChildProcess& operator[](int rank) { return *children_[rank]; }

 private:
  TestName name_;
  SharedMemory memory_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
};

TEST(ProcessExchange, EveryOperation) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    Processes processes(ranks, [](Rank& rank, const ChildProcess::Parent&) {
      for (const int64_t bytes : {0, 1, 999, 1000, 1001, 30000}) {
        if (!ExchangeAll(*rank.communicator, rank.call(), bytes).ok()) return 1;
      }
      return 0;
    });
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(processes[r].Wait(), 0) << "rank " << r << " of " << ranks;
  }
}

int ExpectUnavailable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable &&
                 status.message().find("rank 2 is gone") != absl::string_view::npos
             ? 0
             : 1;
}

// At once: long before the time-out, which would be another error.
TEST(ProcessExchange, AKilledRankFailsTheOthersAtOnce) {
  Processes processes(3, [](Rank& rank, const ChildProcess::Parent& parent) {
    if (!rank->Barrier(rank.call()).ok()) return 2;
    parent.Send(1);
    if (rank->rank() == 2) return parent.Sleep();
    return ExpectUnavailable(rank->Barrier(rank.call()));
  });
  for (int r = 0; r < 3; ++r) ASSERT_EQ(processes[r].Receive(), 1);
  processes[2].Kill();
  EXPECT_EQ(processes[0].Wait(), 0);
  EXPECT_EQ(processes[1].Wait(), 0);
}

TEST(ProcessExchange, AStoppedProcessFailsTheOthersWithinTheTimeout) {
  Processes processes(
      2,
      [](Rank& rank, const ChildProcess::Parent& parent) {
        if (!rank->Barrier(rank.call()).ok()) return 2;
        parent.Send(1);
        if (rank->rank() == 1) return parent.Sleep();
        return rank->Barrier(rank.call()).code() == absl::StatusCode::kDeadlineExceeded ? 0 : 1;
      },
      /*timeout_seconds=*/2);
  for (int r = 0; r < 2; ++r) ASSERT_EQ(processes[r].Receive(), 1);
  ASSERT_EQ(kill(processes[1].pid(), SIGSTOP), 0);
  EXPECT_EQ(processes[0].Wait(), 0);
}

}  // namespace
}  // namespace moestro::collective
