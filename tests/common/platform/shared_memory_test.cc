#include "common/platform/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <algorithm>
#include <utility>

#include "tests/common/platform/child_process.h"
#include "tests/common/platform/test_name.h"

namespace moestro {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using ::testing::HasSubstr;
using testing::TestName;

// The object's entry in List; an entry without a name when it is not there.
SharedMemory::Listing Find(const std::string& name) {
  const std::vector<SharedMemory::Listing> objects = SharedMemory::List(name).value();
  for (const SharedMemory::Listing& listing : objects) {
    if (listing.name == name) return listing;
  }
  return {};
}

TEST(SharedMemoryTest, CreateReservesEverythingAndIsZero) {
  const TestName name("create");
  constexpr int64_t kBytes = 3 << 20;
  const SharedMemory memory = SharedMemory::Create(name, kBytes).value();
  struct stat info;
  ASSERT_EQ(stat(("/dev/shm/" + name.str()).c_str(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, kBytes);
  EXPECT_EQ(info.st_size, kBytes);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(memory.name(), name.str());
  EXPECT_EQ(memory.size(), kBytes);
  EXPECT_TRUE(std::all_of(memory.data(), memory.data() + kBytes, [](uint8_t byte) { return byte == 0; }));
  memory.data()[kBytes - 1] = 1;
  EXPECT_GE(memory.HugePageBytes(), 0);
  EXPECT_LE(memory.HugePageBytes(), kBytes);
}

TEST(SharedMemoryTest, NameIsTakenUntilUnlinked) {
  const TestName name("taken");
  const SharedMemory first = SharedMemory::Create(name, 100).value();
  EXPECT_EQ(SharedMemory::Create(name, 100).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Find(name).bytes, 100) << "the failed call must not remove the object of another";
  EXPECT_TRUE(SharedMemory::Unlink(name).ok());
  EXPECT_TRUE(SharedMemory::Unlink(name).ok()) << "nothing to remove is fine";
  const SharedMemory second = SharedMemory::Create(name, 100).value();
  first.data()[0] = 1;
  EXPECT_EQ(second.data()[0], 0);
}

TEST(SharedMemoryTest, RejectsBadArguments) {
  for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("a/b"),
                                  std::string("a\0b", 3), std::string(300, 'a')}) {
    EXPECT_EQ(SharedMemory::Create(name, 100).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(SharedMemory::OpenReadOnly(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(SharedMemory::Unlink(name).code(), absl::StatusCode::kInvalidArgument) << name;
  }
  const TestName name("sizes");
  EXPECT_EQ(SharedMemory::Create(name, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedMemory::Create(name, -1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SharedMemoryTest, MissingNames) {
  const TestName name("missing");
  EXPECT_EQ(SharedMemory::OpenReadOnly(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SharedMemory::OpenWritable(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SharedMemory::Adopt(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(SharedMemory::UnlinkIfUnused(name).value());
}

TEST(SharedMemoryTest, TooLargeSaysWhatIsFreeAndLeavesNothing) {
  const TestName name("huge");
  const absl::Status status = SharedMemory::Create(name, int64_t{1} << 50).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("needs 1048576.00 GiB of shared memory, /dev/shm has "), HasSubstr(" GiB free; "),
                    HasSubstr("`moestro segments prune --all`"), HasSubstr("--shm-size"), HasSubstr("MOESTRO_SHM_SIZE"),
                    HasSubstr("remount")));
  EXPECT_TRUE(Find(name).name.empty());
}

TEST(SharedMemoryTest, ReservationSurvivesSignals) {
  struct sigaction action = {};
  struct sigaction previous;
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &previous), 0);
  const itimerval often = {.it_interval = {.tv_sec = 0, .tv_usec = 10000}, .it_value = {.tv_sec = 0, .tv_usec = 1000}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  const TestName name("signals");
  EXPECT_TRUE(SharedMemory::Create(name, 256 << 20).ok());
  const itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &previous, nullptr);
}

TEST(SharedMemoryTest, WritableUserSharesBytes) {
  const TestName name("writable");
  const SharedMemory owner = SharedMemory::Create(name, 5000).value();
  const SharedMemory user = SharedMemory::OpenWritable(name).value();
  EXPECT_EQ(user.size(), 5000);
  user.data()[4999] = 42;
  EXPECT_EQ(owner.data()[4999], 42);
}

TEST(SharedMemoryTest, ReadOnlyMappingFaultsOnWrite) {
  const TestName name("read-only");
  const SharedMemory owner = SharedMemory::Create(name, 5000).value();
  owner.data()[7] = 7;
  const SharedMemory user = SharedMemory::OpenReadOnly(name).value();
  EXPECT_EQ(user.data()[7], 7);
  EXPECT_NE(mprotect(user.data(), user.size(), PROT_READ | PROT_WRITE), 0);
  ChildProcess writer([&](const ChildProcess::Parent&) {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer has its own handler
    *static_cast<volatile uint8_t*>(user.data() + 7) = 8;
    return 0;
  });
  EXPECT_EQ(writer.Wait(), -SIGSEGV);
  EXPECT_EQ(owner.data()[7], 7);
}

TEST(SharedMemoryTest, MappingOutlivesTheNameAndMoves) {
  const TestName name("moved");
  SharedMemory first = SharedMemory::Create(name, 100).value();
  ASSERT_TRUE(SharedMemory::Unlink(name).ok());
  first.data()[0] = 9;
  SharedMemory second = std::move(first);
  EXPECT_EQ(second.data()[0], 9);
  second = SharedMemory();
  EXPECT_EQ(second.data(), nullptr);
}

TEST(SharedMemoryTest, FreedMemoryIsTheSystemsAgainForEveryMapping) {
  const TestName name("free");
  constexpr int64_t kBytes = 3 << 20;
  const SharedMemory memory = SharedMemory::Create(name, kBytes).value();
  std::fill_n(memory.data(), kBytes, uint8_t{1});
  const SharedMemory user = SharedMemory::OpenWritable(name).value();
  EXPECT_EQ(user.Free(kBytes + 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(user.Free(kBytes).ok());
  EXPECT_EQ(memory.data()[kBytes - 1], 1);
  ASSERT_TRUE(user.Free(4097).ok());
  EXPECT_EQ(memory.data()[8191], 1) << "a page that was not to go as a whole";
  EXPECT_TRUE(std::all_of(memory.data() + 8192, memory.data() + kBytes, [](uint8_t byte) { return byte == 0; }));
  struct stat info;
  ASSERT_EQ(stat(("/dev/shm/" + name.str()).c_str(), &info), 0);
  EXPECT_EQ(info.st_size, kBytes);
  memory.data()[kBytes - 1] = 2;
  EXPECT_EQ(user.data()[kBytes - 1], 2);
}

TEST(SharedMemoryTest, ListTellsOwnersAndUsersApart) {
  const TestName b("list-b");
  const TestName a("list-a");
  absl::StatusOr<SharedMemory> owner = SharedMemory::Create(b, 200);
  const SharedMemory other = SharedMemory::Create(a, 100).value();
  const std::vector<SharedMemory::Listing> all = SharedMemory::List(TestName::Prefix() + "list-").value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, a.str());
  EXPECT_EQ(all[1].name, b.str());
  EXPECT_EQ(all[1].bytes, 200);
  EXPECT_TRUE(Find(b).owner_alive);
  EXPECT_FALSE(Find(b).attached) << "the owner is not a user";

  absl::StatusOr<SharedMemory> user = SharedMemory::OpenReadOnly(b);
  EXPECT_TRUE(user->HasOtherOwner());
  EXPECT_TRUE(Find(b).attached);
  owner = SharedMemory();
  EXPECT_FALSE(user->HasOtherOwner());
  EXPECT_FALSE(Find(b).owner_alive);
  EXPECT_TRUE(Find(b).attached);
  user = SharedMemory();
  EXPECT_FALSE(Find(b).attached);
}

TEST(SharedMemoryTest, OwnerThatIsKilledCanBeReplaced) {
  const TestName name("adopt");
  ChildProcess owner([&](const ChildProcess::Parent& parent) {
    const SharedMemory memory = SharedMemory::Create(name, 1000).value();
    memory.data()[999] = 77;
    parent.Send(1);
    return parent.Sleep();
  });
  ASSERT_EQ(owner.Receive(), 1);
  EXPECT_TRUE(Find(name).owner_alive);
  EXPECT_EQ(SharedMemory::Adopt(name).status().code(), absl::StatusCode::kFailedPrecondition);
  owner.Kill();
  EXPECT_FALSE(Find(name).owner_alive);
  const SharedMemory adopted = SharedMemory::Adopt(name).value();
  EXPECT_TRUE(Find(name).owner_alive);
  EXPECT_EQ(adopted.size(), 1000);
  EXPECT_EQ(adopted.data()[999], 77);
}

TEST(SharedMemoryTest, UserThatIsKilledIsNoLongerAttached) {
  const TestName name("user");
  const SharedMemory owner = SharedMemory::Create(name, 1000).value();
  ChildProcess user([&](const ChildProcess::Parent& parent) {
    const SharedMemory memory = SharedMemory::OpenReadOnly(name).value();
    parent.Send(memory.size());
    return parent.Sleep();
  });
  ASSERT_EQ(user.Receive(), 1000);
  EXPECT_TRUE(Find(name).attached);
  user.Kill();
  EXPECT_FALSE(Find(name).attached);
}

TEST(SharedMemoryTest, UnlinkIfUnusedSparesTheLiving) {
  const TestName name("prune");
  absl::StatusOr<SharedMemory> owner = SharedMemory::Create(name, 1000);
  EXPECT_FALSE(SharedMemory::UnlinkIfUnused(name).value());
  absl::StatusOr<SharedMemory> user = SharedMemory::OpenReadOnly(name);
  owner = SharedMemory();
  EXPECT_FALSE(SharedMemory::UnlinkIfUnused(name).value());
  user = SharedMemory();
  EXPECT_EQ(Find(name).bytes, 1000);
  EXPECT_TRUE(SharedMemory::UnlinkIfUnused(name).value());
  EXPECT_TRUE(Find(name).name.empty());
}

TEST(SharedMemoryTest, UnlinkOrphanSparesALivingOwner) {
  const TestName name("orphan");
  EXPECT_TRUE(SharedMemory::UnlinkOrphan(name).ok()) << "nothing to remove is fine";
  absl::StatusOr<SharedMemory> owner = SharedMemory::Create(name, 1000);
  const SharedMemory user = SharedMemory::OpenReadOnly(name).value();
  EXPECT_EQ(SharedMemory::UnlinkOrphan(name).code(), absl::StatusCode::kFailedPrecondition);
  owner = SharedMemory();
  owner = SharedMemory::Adopt(name);
  EXPECT_EQ(SharedMemory::UnlinkOrphan(name).code(), absl::StatusCode::kFailedPrecondition)
      << "a successor is an owner";
  EXPECT_EQ(Find(name).bytes, 1000);
  owner = SharedMemory();
  EXPECT_TRUE(SharedMemory::UnlinkOrphan(name).ok()) << "users do not matter";
  EXPECT_TRUE(Find(name).name.empty());
}

TEST(SharedMemoryTest, UnfinishedObjectIsNotOpenedButCanBeRemoved) {
  const TestName name("unfinished");
  const int fd = shm_open(name.str().c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  ASSERT_GE(fd, 0);
  close(fd);
  EXPECT_EQ(SharedMemory::OpenReadOnly(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SharedMemory::Adopt(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Find(name).name, name.str());
  EXPECT_TRUE(SharedMemory::UnlinkIfUnused(name).value());
}

TEST(SharedMemoryTest, ObjectBeingReservedIsNotOpened) {
  const TestName name("reserving");
  int calls = 0;
  const auto watch = [&](int64_t bytes) {
    ++calls;
    EXPECT_EQ(bytes, 5000);
    EXPECT_EQ(SharedMemory::OpenReadOnly(name).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(Find(name).bytes, 0);
    EXPECT_TRUE(Find(name).owner_alive);
    return absl::OkStatus();
  };
  const auto memory = SharedMemory::Create(name, 5000, {.watch = watch});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Find(name).bytes, 5000);
  EXPECT_TRUE(SharedMemory::OpenReadOnly(name).ok());
}

TEST(SharedMemoryTest, InterruptedReservationLeavesNothing) {
  const TestName name("interrupted");
  const auto watch = [](int64_t) { return absl::CancelledError("enough"); };
  EXPECT_EQ(SharedMemory::Create(name, 5000, {.watch = watch}).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Find(name).name.empty());
}

TEST(SharedMemoryTest, ObjectWhoseOwnerDiedReservingCanOnlyBeRemoved) {
  const TestName name("half");
  ChildProcess child([&](const ChildProcess::Parent&) {
    const auto watch = [](int64_t) -> absl::Status { _exit(0); };
    return SharedMemory::Create(name, 1 << 20, {.threads = 1, .watch = watch}).ok() ? 1 : 2;
  });
  child.Wait();
  EXPECT_EQ(SharedMemory::OpenReadOnly(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SharedMemory::Adopt(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Find(name).bytes, 0);
  EXPECT_TRUE(SharedMemory::UnlinkIfUnused(name).value());
}

}  // namespace
}  // namespace moestro
