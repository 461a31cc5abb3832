#include "common/process/socket_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace moestro {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SocketLockTest : public testing::Test {
 protected:
  const std::string socket_ = testing::TempDir() + "socket-lock-" + std::to_string(getpid()) + ".sock";
  const std::string file_ = socket_ + ".lock";
};

TEST_F(SocketLockTest, OneListens) {
  auto lock = SocketLock::Take(socket_).value();
  const absl::Status refused = SocketLock::Take(socket_).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(socket_), HasSubstr("process " + std::to_string(getpid())), HasSubstr("--run-dir")));
  EXPECT_TRUE(absl::IsUnavailable(SocketLock::Take(socket_).status())) << "the one refused took the file along";
  lock.reset();
  EXPECT_FALSE(std::filesystem::exists(file_));
  EXPECT_TRUE(SocketLock::Take(socket_).ok());
}

TEST_F(SocketLockTest, WhatAKilledProcessLeftDoesNotMatter) {
  std::ofstream(file_) << "1234567890\n";
  const auto lock = SocketLock::Take(socket_).value();
  EXPECT_THAT(std::string(SocketLock::Take(socket_).status().message()),
              HasSubstr("process " + std::to_string(getpid()) + " listens"));
}

TEST_F(SocketLockTest, TheFileOfASuccessorIsNotRemoved) {
  auto first = SocketLock::Take(socket_).value();
  std::filesystem::remove(file_);
  const auto second = SocketLock::Take(socket_).value();
  first.reset();
  EXPECT_TRUE(absl::IsUnavailable(SocketLock::Take(socket_).status()));
}

TEST_F(SocketLockTest, AFolderThatIsNotThere) {
  const absl::Status refused = SocketLock::Take("/no/such/folder/x.sock").status();
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("/no/such/folder/x.sock.lock"));
}

}  // namespace
}  // namespace moestro
