#include "services/router/request/running_requests.h"

#include <gtest/gtest.h>

#include <optional>

namespace moestro::router {
namespace {

TEST(RunningRequestsTest, AbortsTheOneOfThatName) {
  RunningRequests table;
  int first_ended = 0, second_ended = 0;
  auto first = table.Begin("alice", "first", [&] { ++first_ended; });
  ASSERT_TRUE(first.ok());
  const auto second = table.Begin("alice", "second", [&] { ++second_ended; });
  EXPECT_TRUE(table.Abort("alice", "second").ok());
  EXPECT_EQ(first_ended, 0);
  EXPECT_EQ(second_ended, 1);
  EXPECT_FALSE(first->aborted());
  EXPECT_TRUE(second->aborted());
  EXPECT_TRUE(absl::IsNotFound(table.Abort("alice", "third")));
}

TEST(RunningRequestsTest, TenantsDoNotReachEachOther) {
  RunningRequests table;
  int ended = 0;
  const auto of_alice = table.Begin("alice", "name", [&] { ++ended; });
  const auto of_bob = table.Begin("bob", "name", [] {});
  EXPECT_TRUE(of_bob.ok()) << "or bob would learn that alice has such a request";
  EXPECT_TRUE(table.Abort("bob", "name").ok());
  EXPECT_EQ(ended, 0);
  EXPECT_TRUE(absl::IsNotFound(table.Abort("carol", "name")));
}

TEST(RunningRequestsTest, ANameIsFreeAgainWhenItsRequestHasEnded) {
  RunningRequests table;
  int ended = 0;
  auto begun = table.Begin("alice", "name", [&] { ++ended; });
  ASSERT_TRUE(begun.ok());
  EXPECT_TRUE(absl::IsAlreadyExists(table.Begin("alice", "name", [] {}).status()));
  EXPECT_TRUE(table.Abort("alice", "name").ok()) << "whoever was refused has not taken its place";
  EXPECT_EQ(ended, 1);
  std::optional<RunningRequests::Entry> entry = *std::move(begun);
  EXPECT_TRUE(table.Abort("alice", "name").ok()) << "moved, not ended";
  entry.reset();
  EXPECT_TRUE(absl::IsNotFound(table.Abort("alice", "name")));
  EXPECT_EQ(ended, 2);
  EXPECT_TRUE(table.Begin("alice", "name", [] {}).ok());
}

}  // namespace
}  // namespace moestro::router
