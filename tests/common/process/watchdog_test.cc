#include "common/process/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/read_file.h"

namespace moestro {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

class WatchdogTest : public testing::Test {
 protected:
  std::unique_ptr<Watchdog> Open() {
    return Watchdog::Open({.file = file_,
                           .stall_time = seconds(10),
                           .on_change = [this](bool alive) { changes_.push_back(alive); }})
        .value();
  }
  void LookEverySecond(Watchdog& watchdog, int from, int to) const {
    for (int s = from; s <= to; ++s) watchdog.Look(start_ + seconds(s));
  }
  std::string Count() const { return ReadFile(file_).value(); }

  const std::string file_ = testing::TempDir() + "watchdog-" + std::to_string(getpid()) + ".heartbeat";
  const Heartbeat::Clock::time_point start_{seconds(1000)};
  std::vector<bool> changes_;
};

TEST_F(WatchdogTest, CountsOnWhileThreadsWithWorkGoOn) {
  const auto watchdog = Open();
  const auto loop = std::make_shared<Heartbeat>("the loop");
  const auto other = std::make_shared<Heartbeat>("the other");
  watchdog->Watch(loop);
  watchdog->Watch(other);
  watchdog->Look(start_);
  EXPECT_EQ(Count(), "1\n") << "they have nothing to do";
  loop->Beat(start_);
  other->Beat(start_);
  LookEverySecond(*watchdog, 1, 9);
  EXPECT_EQ(Count(), "10\n");
  other->Beat(start_ + seconds(9));
  LookEverySecond(*watchdog, 10, 11);
  EXPECT_EQ(Count(), "hangs\n") << "one of them";
  EXPECT_THAT(changes_, ElementsAre(false));
  loop->Beat(start_ + seconds(12));
  watchdog->Look(start_ + seconds(12));
  EXPECT_EQ(Count(), "11\n");
  EXPECT_THAT(changes_, ElementsAre(false, true));
}

// A stopped process is not one that hangs, though its clock goes on.
TEST_F(WatchdogTest, APauseOfTheWholeProcessIsNobodysFault) {
  const auto watchdog = Open();
  const auto loop = std::make_shared<Heartbeat>("the loop");
  watchdog->Watch(loop);
  watchdog->Look(start_);
  loop->Beat(start_);
  LookEverySecond(*watchdog, 60, 69);
  EXPECT_EQ(Count(), "11\n") << "it had nine seconds since";
  watchdog->Look(start_ + seconds(70));
  EXPECT_EQ(Count(), "hangs\n");
}

TEST_F(WatchdogTest, TheFileGoesWithTheProcess) {
  auto watchdog = Open();
  watchdog->Look(start_);
  EXPECT_EQ(Count(), "1\n");
  watchdog.reset();
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(WatchdogTest, AFileThatSomebodyRemovesComesAgain) {
  const auto watchdog = Open();
  watchdog->Look(start_);
  std::filesystem::remove(file_);
  watchdog->Look(start_);
  EXPECT_EQ(Count(), "2\n");
}

TEST_F(WatchdogTest, AFileThatCannotBeMadeIsNamed) {
  const absl::Status status = Watchdog::Open({.file = "/no/such/folder/x.heartbeat"}).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/no/such/folder/x.heartbeat"));
}

// The messages to systemd: sd_notify(3).
TEST_F(WatchdogTest, SystemdHearsOfEverySignOfLife) {
  const std::string path = testing::TempDir() + "notify-" + std::to_string(getpid());
  const int heard = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(bind(heard, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  const auto next = [&] {
    char text[64];
    const ssize_t bytes = recv(heard, text, sizeof(text), MSG_DONTWAIT);
    return bytes < 0 ? std::string("nothing") : std::string(text, static_cast<size_t>(bytes));
  };
  auto watchdog = Open();
  const auto loop = std::make_shared<Heartbeat>("the loop");
  watchdog->Watch(loop);
  watchdog->Look(start_);
  EXPECT_EQ(next(), "WATCHDOG=1");
  loop->Beat(start_);
  for (int s = 1; s < 10; ++s) {
    watchdog->Look(start_ + seconds(s));
    EXPECT_EQ(next(), "WATCHDOG=1");
  }
  watchdog->Look(start_ + seconds(10));
  EXPECT_EQ(next(), "WATCHDOG=trigger") << "as if the time were over";
  watchdog.reset();
  EXPECT_EQ(next(), "STOPPING=1");
  unsetenv("NOTIFY_SOCKET");
  close(heard);
  unlink(path.c_str());
}

}  // namespace
}  // namespace moestro
