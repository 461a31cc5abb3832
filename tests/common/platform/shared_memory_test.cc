#include "common/platform/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "common/platform/process_memory.h"
#include "tests/common/platform/child_process.h"
#include "tests/common/platform/test_name.h"

namespace moestro {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestName;

// The object's entry in List; an entry without a name if absent.
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

TEST(SharedMemoryTest, ItsModeIsThatOfNoUmask) {
  const TestName name("umask");
  const mode_t umask_before = umask(0777);
  const absl::StatusOr<SharedMemory> memory = SharedMemory::Create(name, 100);
  umask(umask_before);
  ASSERT_TRUE(memory.ok()) << memory.status();
  struct stat info;
  ASSERT_EQ(stat(("/dev/shm/" + name.str()).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
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

// Memory that a GPU registers must be writable meanwhile; writes before and after fault.
TEST(SharedMemoryTest, ALiftableReadOnlyMappingFaultsUntilItIsLifted) {
  const TestName name("liftable");
  const SharedMemory owner = SharedMemory::Create(name, 5000).value();
  const SharedMemory user = SharedMemory::OpenReadOnly(name, SharedMemory::ReadOnly::kLiftable).value();
  EXPECT_EQ(FindMapping(0, name).value().permissions, "rw-s") << "the owner's and the user's";
  ChildProcess writer([&](const ChildProcess::Parent&) {
    signal(SIGSEGV, SIG_DFL);
    *static_cast<volatile uint8_t*>(user.data() + 7) = 8;
    return 0;
  });
  EXPECT_EQ(writer.Wait(), -SIGSEGV);
  ASSERT_EQ(mprotect(user.data(), user.size(), PROT_READ | PROT_WRITE), 0);
  user.data()[7] = 9;
  EXPECT_EQ(owner.data()[7], 9);
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

// A KV pool grows into its name.
TEST(SharedMemoryTest, AListTellsTheMemoryThatAnObjectTakes) {
  const TestName name("part");
  constexpr int64_t kBytes = int64_t{16} << 20;
  const SharedMemory memory = SharedMemory::Create(name, kBytes, {}, 4096).value();
  EXPECT_EQ(Find(name).bytes, kBytes);
  EXPECT_GT(Find(name).memory_bytes, 0);
  EXPECT_LT(Find(name).memory_bytes, kBytes);
  ASSERT_TRUE(memory.Reserve({4096, kBytes}, {}).ok());
  EXPECT_EQ(Find(name).memory_bytes, kBytes);
  ASSERT_TRUE(SharedMemory::Unlink(name).ok());
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

// A size of 0 means "the whole object" to Interprocess: it must not come so far.
TEST(SharedMemoryTest, ObjectThatWasTruncatedToNothingIsNotOpened) {
  const TestName name("truncated");
  absl::StatusOr<SharedMemory> owner = SharedMemory::Create(name, 5000);
  owner = SharedMemory();
  ASSERT_EQ(truncate(("/dev/shm/" + name.str()).c_str(), 0), 0);
  EXPECT_EQ(SharedMemory::OpenReadOnly(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SharedMemory::Adopt(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Find(name).bytes, 0);
}

// Makes an object without an owner whose bytes are not reserved.
void MakeSparseObject(const std::string& name, int64_t bytes) {
  const int fd = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, bytes), 0);
  close(fd);
}

TEST(SharedMemoryTest, SizesAndOffsetsHaveMoreThan32Bits) {
  const TestName name("large");
  constexpr int64_t kBytes = (int64_t{5} << 30) + 4097;
  MakeSparseObject(name, kBytes);
  const SharedMemory owner = SharedMemory::Adopt(name).value();
  const SharedMemory user = SharedMemory::OpenReadOnly(name).value();
  EXPECT_EQ(owner.size(), kBytes);
  EXPECT_EQ(user.size(), kBytes);
  owner.data()[kBytes - 1] = 7;
  EXPECT_EQ(user.data()[kBytes - 1], 7);
  EXPECT_TRUE(owner.Free(int64_t{5} << 30).ok());
  EXPECT_EQ(user.data()[kBytes - 1], 0);
}

// Lowers a limit of this process until it ends.
class LowLimit {
 public:
  LowLimit(int resource, rlim_t limit) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit low = {.rlim_cur = limit, .rlim_max = before_.rlim_max};
    setrlimit(resource_, &low);
  }
  ~LowLimit() { setrlimit(resource_, &before_); }
  LowLimit(const LowLimit&) = delete;
  LowLimit& operator=(const LowLimit&) = delete;

 private:
  const int resource_;
  rlimit before_ = {};
};

void ExpectError(const absl::Status& status, int error, const std::string& message) {
  EXPECT_EQ(status.code(), absl::ErrnoToStatusCode(error)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(SharedMemoryTest, WhatTheSystemRefusesIsAnError) {
  const TestName name("refused");
  const TestName sparse("refused-sparse");
  MakeSparseObject(sparse, int64_t{1} << 60);
  ExpectError(SharedMemory::OpenReadOnly(sparse).status(), ENOMEM,
              "shared memory " + sparse.str() + ": cannot map 1152921504606846976 bytes");
  {
    const LowLimit descriptors(RLIMIT_NOFILE, 0);
    ExpectError(SharedMemory::Create(name, 100).status(), EMFILE, "shared memory " + name.str());
    ExpectError(SharedMemory::OpenReadOnly(sparse).status(), EMFILE, "shared memory " + sparse.str());
    ExpectError(SharedMemory::UnlinkIfUnused(sparse).status(), EMFILE, "shared memory " + sparse.str());
  }
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  {
    const LowLimit file_size(RLIMIT_FSIZE, 4096);
    ExpectError(SharedMemory::Create(name, 8192).status(), EFBIG,
                "shared memory " + name.str() + ": cannot set its size");
  }
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(Find(name).name.empty());
}

// The entries of a folder of /proc/self.
int64_t Entries(const char* folder) { return std::distance(std::filesystem::directory_iterator(folder), {}); }

TEST(SharedMemoryTest, NothingStaysOpenOrMapped) {
  const TestName name("closed");
  const TestName missing("closed-missing");
  const int64_t descriptors = Entries("/proc/self/fd");
  {
    absl::StatusOr<SharedMemory> owner = SharedMemory::Create(name, 5000);
    absl::StatusOr<SharedMemory> user = SharedMemory::OpenReadOnly(name);
    ASSERT_TRUE(owner.ok() && user.ok());
    *owner = *std::move(user);
    EXPECT_FALSE(SharedMemory::Create(name, 5000).ok());
    EXPECT_FALSE(SharedMemory::OpenReadOnly(missing).ok());
    EXPECT_EQ(Find(name).bytes, 5000);
  }
  EXPECT_EQ(Entries("/proc/self/fd"), descriptors);
  EXPECT_FALSE(FindMapping(0, name).ok());
  EXPECT_TRUE(SharedMemory::UnlinkIfUnused(name).value());
  EXPECT_EQ(Entries("/proc/self/fd"), descriptors);
}

TEST(SharedMemoryTest, ObjectsThatVanishBetweenListAndOpenAreNoErrors) {
  const TestName kept("vanish-kept");
  const TestName name("vanish-now");
  const SharedMemory memory = SharedMemory::Create(kept, 4096).value();
  std::atomic<bool> stop{false};
  std::thread churn([&] {
    while (!stop) {
      std::ofstream(("/dev/shm/" + name.str()).c_str());
      EXPECT_TRUE(SharedMemory::Unlink(name).ok());
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const absl::StatusOr<std::vector<SharedMemory::Listing>> objects =
        SharedMemory::List(TestName::Prefix() + "vanish-");
    EXPECT_TRUE(objects.ok()) << objects.status();
    EXPECT_EQ(std::ranges::count(*objects, kept.str(), &SharedMemory::Listing::name), 1);
    const absl::Status opened = SharedMemory::OpenReadOnly(name).status();
    EXPECT_EQ(opened.code(), absl::StatusCode::kNotFound) << opened;
  }
  stop = true;
  churn.join();
}

std::string PathOf(const std::string& name) { return "/dev/shm/" + name; }

// An object of another user: 4096 bytes, with permissions `mode`.
void MakeObject(const std::string& name, mode_t mode) {
  std::ofstream(PathOf(name)) << std::string(4096, 'x');
  ASSERT_EQ(chmod(PathOf(name).c_str(), mode), 0);
}

// No function opens, changes or removes such an object; List says why.
void ExpectLeftAlone(const std::string& name, const std::string& reason) {
  struct stat before;
  ASSERT_EQ(lstat(PathOf(name).c_str(), &before), 0);
  EXPECT_EQ(SharedMemory::OpenReadOnly(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SharedMemory::OpenWritable(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SharedMemory::Adopt(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SharedMemory::Create(name, 4096).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(SharedMemory::UnlinkOrphan(name).ok());
  EXPECT_FALSE(SharedMemory::UnlinkIfUnused(name).value());
  std::vector<std::string> foreign;
  EXPECT_TRUE(SharedMemory::List(name, &foreign)->empty());
  EXPECT_THAT(foreign, ElementsAre(AllOf(HasSubstr(PathOf(name) + " " + reason), HasSubstr("remove it with rm"))));
  struct stat after;
  ASSERT_EQ(lstat(PathOf(name).c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(after.st_mode, before.st_mode);
  EXPECT_EQ(after.st_size, before.st_size);
}

TEST(SharedMemoryTest, ObjectThatIsOpenToOthersIsLeftAlone) {
  const TestName name("open");
  for (const mode_t mode : {0604, 0640, 0606, 0666}) {
    MakeObject(name, mode);
    ExpectLeftAlone(name, "is open to others (mode 06");
  }
}

TEST(SharedMemoryTest, ObjectOfAnotherUserIsLeftAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const TestName name("foreign");
  for (const mode_t mode : {0400, 0444, 0600, 0644, 0666}) {
    MakeObject(name, mode);
    ASSERT_EQ(chown(PathOf(name).c_str(), 65534, 65534), 0);
    ExpectLeftAlone(name, "belongs to user 65534");
  }
}

TEST(SharedMemoryTest, PipesAndLinksAreLeftAlone) {
  const TestName pipe("pipe");
  ASSERT_EQ(mkfifo(PathOf(pipe).c_str(), 0600), 0);
  ExpectLeftAlone(pipe, "is not shared memory");
  const TestName target("target");
  const SharedMemory memory = SharedMemory::Create(target, 4096).value();
  const TestName link("link");
  ASSERT_EQ(symlink(PathOf(target).c_str(), PathOf(link).c_str()), 0);
  ExpectLeftAlone(link, "is not shared memory");
  EXPECT_TRUE(Find(target).owner_alive);
}

TEST(SharedMemoryTest, ManyObjectsOfOthersAreAFewLines) {
  std::vector<std::unique_ptr<TestName>> names;
  for (int i = 0; i < 20; ++i) {
    names.push_back(std::make_unique<TestName>("many-\n" + std::to_string(i)));
    MakeObject(*names.back(), 0666);
  }
  std::vector<std::string> foreign;
  EXPECT_TRUE(SharedMemory::List(TestName::Prefix() + "many-", &foreign)->empty());
  ASSERT_EQ(foreign.size(), 9u);
  EXPECT_THAT(foreign.front(), HasSubstr("many-\\n"));
  EXPECT_EQ(foreign.back(), "12 more objects in /dev/shm are left alone");
}

TEST(SharedMemoryTest, WhoRemovesAnObjectIsNotTakenForItsOwner) {
  const TestName name("remover");
  absl::StatusOr<SharedMemory> owner = SharedMemory::Create(name, 4096);
  const SharedMemory user = SharedMemory::OpenReadOnly(name).value();
  owner = SharedMemory();
  std::atomic<bool> stop{false};
  std::thread remover([&] {
    while (!stop) EXPECT_FALSE(SharedMemory::UnlinkIfUnused(name).value());
  });
  int taken = 0;
  for (int i = 0; i < 100000; ++i) taken += user.HasOtherOwner() ? 1 : 0;
  stop = true;
  remover.join();
  EXPECT_EQ(taken, 0);
}

TEST(SharedMemoryTest, WhoRemovesAnOrphanIsNotTakenForItsOwner) {
  const TestName name("orphaned");
  int taken = 0;
  for (int i = 0; i < 300; ++i) {
    absl::StatusOr<SharedMemory> owner = SharedMemory::Create(name, 4096);
    ASSERT_TRUE(owner.ok()) << owner.status();
    const SharedMemory user = SharedMemory::OpenReadOnly(name).value();
    owner = SharedMemory();
    std::atomic<bool> removed{false};
    std::thread remover([&] {
      EXPECT_TRUE(SharedMemory::UnlinkOrphan(name).ok());
      removed = true;
    });
    while (!removed) taken += user.HasOtherOwner() ? 1 : 0;
    remover.join();
  }
  EXPECT_EQ(taken, 0);
}

TEST(SharedMemoryTest, CreatorThatLosesItsObjectToARemoverMayTryAgain) {
  const TestName name("raced");
  std::atomic<bool> stop{false};
  std::thread remover([&] {
    while (!stop) EXPECT_TRUE(SharedMemory::UnlinkIfUnused(name).ok());
  });
  // Between its creation and its lock an object looks abandoned. Ends when that has happened a few times.
  int lost = 0;
  for (int i = 0; i < 20000 && lost < 3; ++i) {
    const absl::StatusOr<SharedMemory> memory = SharedMemory::Create(name, 4096);
    if (memory.ok()) {
      EXPECT_TRUE(SharedMemory::Unlink(name).ok());
    } else if (!absl::IsAlreadyExists(memory.status())) {
      EXPECT_EQ(memory.status().code(), absl::StatusCode::kUnavailable) << memory.status();
      ++lost;
    }
  }
  stop = true;
  remover.join();
}

TEST(SharedMemoryTest, MappingsStayOutOfCoreDumps) {
  const TestName name("dump");
  const SharedMemory owner = SharedMemory::Create(name, 4096).value();
  const SharedMemory reader = SharedMemory::OpenReadOnly(name).value();
  const SharedMemory writer = SharedMemory::OpenWritable(name).value();
  std::ifstream smaps("/proc/self/smaps");
  bool ours = false;
  int mappings = 0;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find("/dev/shm/") != std::string::npos) ours = line.find(PathOf(name)) != std::string::npos;
    if (!ours || line.rfind("VmFlags:", 0) != 0) continue;
    EXPECT_THAT(line + " ", HasSubstr(" dd ")) << "\"do not dump\"";
    ++mappings;
    ours = false;
  }
  EXPECT_EQ(mappings, 3);
}

}  // namespace
}  // namespace moestro
