#include "services/router/roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/services/router/fake_node.h"

namespace moestro {
namespace {

using ::testing::HasSubstr;

struct Monitored {
  testing::FakeClock clock;
  bool up = false;
  int pings = 0;
  RoleMonitor monitor{[this](Role) {
                        ++pings;
                        return up;
                      },
                      clock, std::chrono::seconds(10)};
  absl::Status Wait() {
    return monitor.WaitUntilUp(Role::kDecode, [] { return absl::OkStatus(); });
  }
};

TEST(RoleMonitorTest, DownUntilAPingSucceeds) {
  Monitored roles;
  roles.monitor.Poll();
  EXPECT_FALSE(roles.monitor.IsUp(Role::kDecode));
  roles.up = true;
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
  roles.clock.on_sleep = [&] { roles.up = roles.clock.Now() - start >= std::chrono::seconds(4); };
  EXPECT_TRUE(roles.Wait().ok());
  EXPECT_LE(roles.clock.Now() - start, std::chrono::milliseconds(4100));
}

TEST(RoleMonitorTest, TheWindowBeginsWhenTheRoleWentAway) {
  Monitored roles;
  roles.up = true;
  roles.monitor.Poll();
  roles.up = false;
  roles.clock.SleepFor(std::chrono::seconds(100));
  roles.monitor.ReportDown(Role::kDecode);
  roles.clock.SleepFor(std::chrono::seconds(6));
  const auto start = roles.clock.Now();
  const absl::Status status = roles.Wait();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("decode has not answered for 10 seconds"));
  EXPECT_LE(roles.clock.Now() - start, std::chrono::milliseconds(4100));
}

TEST(RoleMonitorTest, GivesUpWhenTheCallerDoes) {
  Monitored roles;
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      roles.monitor.WaitUntilUp(Role::kPrefill, [] { return absl::DeadlineExceededError("late"); })));
}

}  // namespace
}  // namespace moestro
