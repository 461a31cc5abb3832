#include "services/router/admission/roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Monitored {
  testing::FakeRequestClock clock;
  Life life = Life::kAway;
  int pings = 0;
  std::vector<Role> cut_off;
  RoleMonitor monitor{[this](Role) {
                        ++pings;
                        return life;
                      },
                      [this](Role role) { cut_off.push_back(role); }, clock, std::chrono::seconds(10)};
  absl::Status Wait() {
    return monitor.WaitUntilUp(Role::kDecode, [] { return absl::OkStatus(); });
  }
};

TEST(RoleMonitorTest, DownUntilAPingSucceeds) {
  Monitored roles;
  roles.monitor.Poll();
  EXPECT_FALSE(roles.monitor.IsUp(Role::kDecode));
  roles.life = Life::kUp;
  roles.clock.SleepFor(RoleMonitor::kMinPingInterval);
  roles.monitor.Poll();
  EXPECT_TRUE(roles.monitor.IsUp(Role::kDecode));
  EXPECT_TRUE(roles.monitor.IsUp(Role::kPrefill));
}

TEST(RoleMonitorTest, AsksNoMoreOftenThanTheInterval) {
  Monitored roles;
  for (int i = 0; i < 100; ++i) roles.monitor.Poll();
  EXPECT_EQ(roles.pings, 2);  // one a role
}

TEST(RoleMonitorTest, WaitsForARoleThatComesBack) {
  Monitored roles;
  const auto start = roles.clock.Now();
  roles.clock.on_sleep = [&] {
    if (roles.clock.Now() - start >= std::chrono::seconds(4)) roles.life = Life::kUp;
  };
  EXPECT_TRUE(roles.Wait().ok());
  EXPECT_LE(roles.clock.Now() - start, std::chrono::milliseconds(4100));
}

TEST(RoleMonitorTest, TheWindowBeginsWhenTheRoleWentAway) {
  Monitored roles;
  roles.life = Life::kUp;
  roles.monitor.Poll();
  roles.life = Life::kAway;
  roles.clock.SleepFor(std::chrono::seconds(100));
  roles.monitor.ReportDown(Role::kDecode);
  roles.clock.SleepFor(std::chrono::seconds(6));
  const auto start = roles.clock.Now();
  const absl::Status status = roles.Wait();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("decode has not answered for 10 seconds"));
  EXPECT_LE(roles.clock.Now() - start, std::chrono::milliseconds(4100));
}

TEST(RoleMonitorTest, CutsOffARoleThatIsNotHealthyForAsLongAsRequestsWait) {
  Monitored roles;
  roles.life = Life::kUp;
  roles.monitor.Poll();
  roles.life = Life::kAway;
  roles.clock.Advance(std::chrono::seconds(1));
  roles.monitor.Poll();  // away from now on
  roles.clock.Advance(std::chrono::milliseconds(9900));
  roles.monitor.Poll();
  EXPECT_TRUE(roles.cut_off.empty());
  roles.clock.Advance(std::chrono::milliseconds(100));
  roles.monitor.Poll();
  EXPECT_THAT(roles.cut_off, ElementsAre(Role::kPrefill, Role::kDecode));
  roles.life = Life::kUp;
  roles.clock.Advance(std::chrono::seconds(60));
  roles.monitor.Poll();
  EXPECT_EQ(roles.cut_off.size(), 2u);
}

TEST(RoleMonitorTest, GivesUpWhenTheCallerDoes) {
  Monitored roles;
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      roles.monitor.WaitUntilUp(Role::kPrefill, [] { return absl::DeadlineExceededError("late"); })));
}

// Weights of hundreds of GB load for minutes.
TEST(RoleMonitorTest, RequestsWaitWhileWhatTheRoleNeedsMakesProgress) {
  Monitored roles;
  const auto start = roles.clock.Now();
  roles.clock.on_sleep = [&] {
    if (roles.clock.Now() - start < std::chrono::seconds(100)) roles.monitor.ReportProgress();
  };
  EXPECT_TRUE(absl::IsUnavailable(roles.Wait()));
  EXPECT_GE(roles.clock.Now() - start, std::chrono::seconds(109));
  EXPECT_LE(roles.clock.Now() - start, std::chrono::seconds(111));
}

TEST(RoleMonitorTest, RequestsWaitForARoleThatStarts) {
  Monitored roles;
  const auto start = roles.clock.Now();
  roles.life = Life::kStarting;
  roles.clock.on_sleep = [&] {
    if (roles.clock.Now() - start >= std::chrono::seconds(300)) roles.life = Life::kUp;
  };
  EXPECT_TRUE(roles.Wait().ok());
  EXPECT_FALSE(roles.cut_off.size());
}

TEST(RoleMonitorTest, AStartThatNeverEndsIsAHang) {
  Monitored roles;
  const auto start = roles.clock.Now();
  roles.life = Life::kStarting;
  EXPECT_TRUE(absl::IsUnavailable(roles.Wait()));
  EXPECT_GE(roles.clock.Now() - start, RoleMonitor::kLongestStart + std::chrono::seconds(9));
  EXPECT_LE(roles.clock.Now() - start, RoleMonitor::kLongestStart + std::chrono::seconds(11));
}

}  // namespace
}  // namespace moestro::router
