#include "common/platform/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <limits>

#include "common/platform/shared_memory.h"
#include "tests/common/platform/child_process.h"
#include "tests/common/platform/test_name.h"

namespace moestro {
namespace {

using testing::ChildProcess;
using testing::TestName;

constexpr int64_t kBytes = 16 << 20;
constexpr int kNoProcess = std::numeric_limits<int>::max();  // above the kernel's largest process id

int64_t SumBytes(const SharedMemory& memory) {
  int64_t sum = 0;
  for (int64_t i = 0; i < memory.size(); i += 4096) sum += memory.data()[i];
  return sum;
}

TEST(ProcessMemoryTest, TouchedMemoryIsPrivate) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const MemoryUse before = ReadMemoryUse(0).value();
  const int64_t anonymous_before = ReadOwnMemory()->anonymous_bytes;
  std::memset(memory, 1, kBytes);
  const MemoryUse after = ReadMemoryUse(getpid()).value();
  // Allows a little slack: other pages of the process come and go meanwhile.
  EXPECT_GT(after.private_bytes - before.private_bytes, kBytes - (1 << 20));
  EXPECT_GT(after.rss_bytes - before.rss_bytes, kBytes - (1 << 20));
  EXPECT_GT(ReadOwnMemory()->anonymous_bytes - anonymous_before, kBytes - (1 << 20));
  EXPECT_EQ(after.rss_bytes, after.private_bytes + after.shared_bytes);
  munmap(memory, kBytes);
}

TEST(ProcessMemoryTest, TwoProcessesShareOneObject) {
  const TestName name("facts");
  const SharedMemory owner = SharedMemory::Create(name, kBytes).value();
  std::memset(owner.data(), 1, kBytes);
  EXPECT_EQ(FindMapping(0, name)->private_bytes, kBytes) << "nobody else has touched it yet";
  ChildProcess user([&](const ChildProcess::Parent& parent) {
    munmap(owner.data(), owner.size());  // inherited by the fork
    const SharedMemory memory = SharedMemory::OpenReadOnly(name).value();
    parent.Send(SumBytes(memory));
    return parent.Sleep();
  });
  ASSERT_EQ(user.Receive(), kBytes / 4096);
  const MappingUse theirs = FindMapping(user.pid(), name).value();
  const MappingUse ours = FindMapping(0, name).value();
  EXPECT_EQ(theirs.permissions, "r--s");
  EXPECT_EQ(ours.permissions, "rw-s");
  EXPECT_EQ(theirs.inode, ours.inode);
  EXPECT_NE(theirs.inode, 0u);
  EXPECT_EQ(theirs.rss_bytes, kBytes);
  EXPECT_EQ(theirs.private_bytes, 0);
  EXPECT_EQ(ours.private_bytes, 0);
  EXPECT_GE(ReadMemoryUse(user.pid())->shared_bytes, kBytes);
}

TEST(ProcessMemoryTest, UnlinkedObjectIsFound) {
  const TestName name("unlinked");
  const SharedMemory owner = SharedMemory::Create(name, 4096).value();
  ASSERT_TRUE(SharedMemory::Unlink(name).ok());
  EXPECT_TRUE(FindMapping(0, name).ok());
}

TEST(ProcessMemoryTest, Errors) {
  EXPECT_EQ(FindMapping(0, "moestro-test.not-there").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindMapping(kNoProcess, "any").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadMemoryUse(kNoProcess).status().code(), absl::StatusCode::kNotFound);
}

TEST(ProcessMemoryTest, PageTablesOfASharedObjectAreItsUsersOwn) {
  const TestName name("tables");
  const SharedMemory owner = SharedMemory::Create(name, 16 * kBytes).value();
  const SharedMemory user = SharedMemory::OpenReadOnly(name).value();
  madvise(user.data(), static_cast<size_t>(user.size()), MADV_NOHUGEPAGE);
  const OwnMemory before = ReadOwnMemory().value();
  EXPECT_EQ(SumBytes(user), 0);
  const OwnMemory after = ReadOwnMemory().value();
  EXPECT_GE(after.page_table_bytes - before.page_table_bytes, user.size() / 4096 * 8 / 2) << "8 bytes for 4 KiB";
  EXPECT_LT(after.anonymous_bytes - before.anonymous_bytes, 1 << 20);
}

TEST(ProcessMemoryTest, AvailableMemory) { EXPECT_GT(ReadAvailableMemory()->bytes, 1 << 20); }

}  // namespace
}  // namespace moestro
