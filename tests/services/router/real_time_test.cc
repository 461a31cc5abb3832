#include "services/router/real_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <fstream>
#include <thread>

namespace moestro::router {
namespace {

using ::testing::HasSubstr;

std::string FileWith(const std::string& text) {
  const std::string path = ::testing::TempDir() + "sched_rt_runtime_us-" + std::to_string(getpid());
  std::ofstream(path) << text;
  return path;
}

TEST(RealTimeTest, AThreadThatNeverSleepsMustLeaveTimeForOthers) {
  for (const char* text : {"-1", "0", "none"}) {
    const RealTimeChoice choice = TakeRealTimePriority(FileWith(text));
    EXPECT_FALSE(choice.real_time) << text;
    EXPECT_THAT(choice.reason, HasSubstr("sched_rt_runtime_us"));
  }
  EXPECT_FALSE(TakeRealTimePriority("/nowhere").real_time);
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
}

TEST(RealTimeTest, ThreadsInheritWhatIsPermitted) {
  const std::string file = FileWith("950000\n");
  std::thread([&] {
    const RealTimeChoice choice = TakeRealTimePriority(file);
    EXPECT_EQ(sched_getscheduler(0), choice.real_time ? SCHED_RR : SCHED_OTHER);
    std::thread([&] { EXPECT_EQ(sched_getscheduler(0), choice.real_time ? SCHED_RR : SCHED_OTHER); }).join();
    EXPECT_TRUE(choice.real_time || choice.reason.find("RLIMIT_RTPRIO") != std::string::npos) << choice.reason;
  }).join();
}

}  // namespace
}  // namespace moestro::router
