#include "services/router/request/running_requests.h"

#include <gtest/gtest.h>

#include <optional>

namespace moestro::router {
namespace {

TEST(RunningRequestsTest, AbortsTheOneOfThatName) {
  RunningRequests table;
  int first_ended = 0, second_ended = 0;
  auto first = table.Begin("first", [&] { ++first_ended; });
  ASSERT_TRUE(first.ok());
  const auto second = table.Begin("second", [&] { ++second_ended; });
  EXPECT_TRUE(table.Abort("second").ok());
  EXPECT_EQ(first_ended, 0);
  EXPECT_EQ(second_ended, 1);
  EXPECT_TRUE(absl::IsNotFound(table.Abort("third")));
}

TEST(RunningRequestsTest, ANameIsFreeAgainWhenItsRequestHasEnded) {
  RunningRequests table;
  int ended = 0;
  auto begun = table.Begin("name", [&] { ++ended; });
  ASSERT_TRUE(begun.ok());
  EXPECT_TRUE(absl::IsAlreadyExists(table.Begin("name", [] {}).status()));
  EXPECT_TRUE(table.Abort("name").ok()) << "whoever was refused has not taken its place";
  EXPECT_EQ(ended, 1);
  std::optional<RunningRequests::Entry> entry = *std::move(begun);
  EXPECT_TRUE(table.Abort("name").ok()) << "moved, not ended";
  entry.reset();
  EXPECT_TRUE(absl::IsNotFound(table.Abort("name")));
  EXPECT_EQ(ended, 2);
  EXPECT_TRUE(table.Begin("name", [] {}).ok());
}

}  // namespace
}  // namespace moestro::router
