#include "services/router/rpc/client_call.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include "tests/support/wall_clock.h"

namespace moestro::router {
namespace {

TEST(ClientCallTest, WaitsUntilItIsCancelled) {
  ClientCall call;
  EXPECT_TRUE(call.Check().ok());
  int first = 0, second = 0;
  const ClientCall::Watch watch(call, [&] { ++first; });
  {
    const ClientCall::Watch ended(call, [&] { ++second; });
  }
  call.Cancel();
  EXPECT_TRUE(absl::IsCancelled(call.Check()));
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
}

TEST(CallTimesTest, TheTimeInTheLineDoesNotCount) {
  using std::chrono::milliseconds;
  const CallTimes::Clock::time_point received(std::chrono::hours(1));
  CallTimes times;
  times.NoteAsked(milliseconds(1), received);
  EXPECT_FALSE(times.asked_after());  // nobody measures
  times.SetReceived(received);
  times.NoteAsked(milliseconds(30), received + milliseconds(32));
  times.NoteAsked(milliseconds(40), received + milliseconds(99));  // asks again
  EXPECT_EQ(times.asked_after(), milliseconds(2));
  EXPECT_FALSE(times.TakeToken());
  times.NoteToken(received);
  EXPECT_EQ(times.TakeToken(), received);
  EXPECT_FALSE(times.TakeToken());
}

TEST(ClientCallTest, AWatchThatComesTooLateIsToldAtOnce) {
  ClientCall call;
  call.Cancel();
  int told = 0;
  const ClientCall::Watch watch(call, [&] { ++told; });
  EXPECT_EQ(told, 1);
}

TEST(ClientCallTest, ItsDeadlineIsThatOfItsCallsToRoles) {
  const auto now = std::chrono::steady_clock::now();
  const ClientCall late(now - std::chrono::seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.Check()));
  EXPECT_LT(late.NewContext()->deadline(), std::chrono::system_clock::now());
  const ClientCall early(now + std::chrono::hours(1));
  EXPECT_TRUE(early.Check().ok());
  EXPECT_GT(early.NewContext()->deadline(), std::chrono::system_clock::now());
  EXPECT_EQ(ClientCall().NewContext()->deadline(), std::chrono::system_clock::time_point::max());
}

TEST(ClientCallTest, AStepOfTheSystemsClockMovesNoDeadline) {
  const ClientCall call(std::chrono::steady_clock::now() + std::chrono::hours(1));
  const auto context = call.NewContext();
  for (const std::chrono::hours by : {std::chrono::hours(2), std::chrono::hours(-2)}) {
    const WallClockStep step(by);
    EXPECT_TRUE(call.Check().ok());
    const auto left = context->deadline() - std::chrono::system_clock::now();
    EXPECT_GT(left, std::chrono::hours(0));
    EXPECT_LE(left, std::chrono::hours(1));
  }
}

}  // namespace
}  // namespace moestro::router
