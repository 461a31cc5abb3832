#include "common/platform/memory_fault.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "common/platform/shared_memory.h"
#include "tests/common/platform/child_process.h"
#include "tests/common/platform/test_name.h"

namespace moestro {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using ::testing::HasSubstr;
using testing::TestName;

constexpr int kExitCode = 4;

// Truncates the object under the processes that map it: memory after `bytes` is gone.
void Truncate(const std::string& name, int64_t bytes) { ASSERT_EQ(truncate(("/dev/shm/" + name).c_str(), bytes), 0); }

TEST(MemoryFaultTest, EndsTheProcessAndMarksTheObject) {
  const TestName name("fault");
  absl::StatusOr<SharedMemory> owner = SharedMemory::Create(name, 4 * 4096);
  ASSERT_TRUE(owner.ok()) << owner.status();
  int says[2];
  ASSERT_EQ(pipe(says), 0);
  ChildProcess user([&](const ChildProcess::Parent& parent) {
    dup2(says[1], STDERR_FILENO);
    ExitOnMemoryFault(kExitCode);
    const SharedMemory memory = SharedMemory::OpenReadOnly(name).value();
    parent.Send(memory.data()[2 * 4096]);
    parent.Receive();
    return memory.data()[2 * 4096];
  });
  ASSERT_EQ(user.Receive(), 0);
  EXPECT_FALSE(owner->damaged());
  Truncate(name, 4096);
  user.Send(0);
  EXPECT_EQ(user.Wait(), kExitCode);
  char text[1024] = {};
  ASSERT_GT(read(says[0], text, sizeof(text) - 1), 0);
  EXPECT_THAT(std::string(text), AllOf(HasSubstr("memory fault in " + name.str() + ": its memory is missing"),
                                       HasSubstr("marked as damaged")));
  close(says[0]);
  close(says[1]);

  EXPECT_TRUE(owner->damaged());
  EXPECT_EQ(SharedMemory::OpenReadOnly(name).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(SharedMemory::OpenWritable(name).status().code(), absl::StatusCode::kUnavailable);
  owner = SharedMemory();
  EXPECT_EQ(SharedMemory::Adopt(name).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(SharedMemory::List(name)->size(), 1u) << "it is this user's, and can be removed";
  EXPECT_TRUE(SharedMemory::UnlinkOrphan(name).ok());
}

TEST(MemoryFaultTest, InAnObjectWithoutANameMarksIt) {
  const TestName name("orphan");
  const SharedMemory owner = SharedMemory::Create(name, 2 * 4096).value();
  ChildProcess user([&](const ChildProcess::Parent& parent) {
    ExitOnMemoryFault(kExitCode);
    const SharedMemory memory = SharedMemory::OpenWritable(name).value();
    parent.Send(0);
    parent.Receive();
    memory.data()[4096] = 1;
    return 0;
  });
  ASSERT_EQ(user.Receive(), 0);
  Truncate(name, 4096);
  ASSERT_TRUE(SharedMemory::Unlink(name).ok());
  user.Send(0);
  EXPECT_EQ(user.Wait(), kExitCode);
  EXPECT_TRUE(owner.damaged());
}

TEST(MemoryFaultTest, ElsewhereItIsACrashAsEver) {
  const TestName name("elsewhere");
  ChildProcess user([&](const ChildProcess::Parent&) {
    const int fd = shm_open(name.str().c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    auto* data = static_cast<volatile uint8_t*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
    ExitOnMemoryFault(kExitCode);
    return data[0];
  });
  EXPECT_EQ(user.Wait(), -SIGBUS);
  ChildProcess killed([&](const ChildProcess::Parent&) {
    ExitOnMemoryFault(kExitCode);
    kill(getpid(), SIGBUS);
    return 0;
  });
  EXPECT_EQ(killed.Wait(), -SIGBUS);
}

TEST(MemoryFaultTest, WhatWasUnmappedIsNotWatched) {
  const TestName name("unmapped");
  ChildProcess user([&](const ChildProcess::Parent&) {
    ExitOnMemoryFault(kExitCode);
    uint8_t* data = nullptr;
    {
      const SharedMemory memory = SharedMemory::Create(name, 4096).value();
      data = memory.data();
    }
    const int fd = shm_open(name.str().c_str(), O_RDWR, 0);
    if (ftruncate(fd, 0) != 0) return 1;
    if (mmap(data, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) != data) return 2;
    return static_cast<int>(*static_cast<volatile uint8_t*>(data));
  });
  EXPECT_EQ(user.Wait(), -SIGBUS);
}

}  // namespace
}  // namespace moestro
