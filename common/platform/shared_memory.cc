#include "common/platform/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/permissions.hpp>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/platform/lock_file.h"
#include "common/platform/memory_fault.h"
#include "common/platform/process_memory.h"
#include "common/platform/smaps.h"

namespace moestro {
namespace {

namespace interprocess = boost::interprocess;
using interprocess::mapped_region;
using interprocess::shared_memory_object;

// The directory in which the C library keeps POSIX shared-memory objects.
constexpr char kShmDirectory[] = "/dev/shm";
constexpr off_t kOwnerByte = 0;
constexpr off_t kUserByte = 1;
constexpr off_t kRemoverByte = 2;
// Mode of a complete object. While its owner reserves it, it also has the owner's execute bit: a mark that survives a
// crash.
constexpr mode_t kComplete = S_IRUSR | S_IWUSR;
constexpr mode_t kReserving = kComplete | S_IXUSR;

absl::Status ValidateName(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.size() > NAME_MAX || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory name '", name, "' must be a plain file name"));
  }
  return absl::OkStatus();
}

absl::Status ErrnoStatus(int error, const std::string& what) {
  return absl::ErrnoToStatus(error, absl::StrCat("shared memory ", what));
}

// Why the object described by `info` must not be used; empty if only this user can have written to it.
std::string Foreign(const struct stat& info) {
  if (info.st_uid != geteuid()) return absl::StrCat("belongs to user ", info.st_uid);
  if (!S_ISREG(info.st_mode)) return "is not shared memory";
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::StrFormat("is open to others (mode %04o)", info.st_mode & 07777);
  }
  return "";
}

absl::Status NotThere(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("no shared memory named ", name));
}

absl::StatusOr<struct stat> Stat(int fd, const std::string& name) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, name);
  return info;
}

// NOT_FOUND unless only this user has access to the object.
absl::Status CheckOurs(const struct stat& info, const std::string& name) {
  const std::string foreign = Foreign(info);
  if (foreign.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no shared memory named ", name, ": the object of that name ", foreign));
}

// The same for whatever has that name now.
absl::Status CheckNameIsOurs(const std::string& name) {
  struct stat info;
  if (lstat(absl::StrCat(kShmDirectory, "/", name).c_str(), &info) != 0) return NotThere(name);
  return CheckOurs(info, name);
}

// The system's error number of a call of Interprocess, which throws it; 0 if the call succeeds.
int SystemError(absl::FunctionRef<void()> call) {
  try {
    call();
    return 0;
  } catch (const interprocess::interprocess_exception& exception) {
    return exception.get_native_error();
  }
}

int Descriptor(const shared_memory_object& object) { return object.get_mapping_handle().handle; }

absl::StatusOr<shared_memory_object> OpenObject(const std::string& name, interprocess::mode_t mode) {
  MOE_RETURN_IF_ERROR(ValidateName(name));
  // Before opening: Interprocess would wait for the other end of a pipe that another user gave this name.
  MOE_RETURN_IF_ERROR(CheckNameIsOurs(name));
  shared_memory_object object;
  const int error = SystemError([&] { object = shared_memory_object(interprocess::open_only, name.c_str(), mode); });
  if (error == ENOENT) return NotThere(name);
  if (error != 0) {
    MOE_RETURN_IF_ERROR(CheckNameIsOurs(name));
    return ErrnoStatus(error, name);
  }
  // Again: the name may have changed hands meanwhile.
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(Descriptor(object), name));
  MOE_RETURN_IF_ERROR(CheckOurs(info, name));
  return object;
}

absl::StatusOr<shared_memory_object> CreateObject(const std::string& name) {
  MOE_RETURN_IF_ERROR(ValidateName(name));
  shared_memory_object object;
  const int error = SystemError([&] {
    object = shared_memory_object(interprocess::create_only, name.c_str(), interprocess::read_write,
                                  interprocess::permissions(kReserving));  // regardless of the umask
  });
  if (error == EEXIST) return absl::AlreadyExistsError(absl::StrCat("shared memory ", name, " exists"));
  if (error != 0) return ErrnoStatus(error, name);
  return object;
}

// Only the owner holds an exclusive lock on its byte; a process that removes the object holds a shared one.
absl::StatusOr<bool> OwnerLives(int fd) { return IsByteLocked(fd, F_RDLCK, kOwnerByte); }

// UnlinkIfUnused and UnlinkOrphan lock before they unlink. So a lock holder that sees the name still linked keeps it.
absl::Status CheckLinked(int fd, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(fd, name));
  if (info.st_nlink == 0) return absl::NotFoundError(absl::StrCat("shared memory ", name, " was just removed"));
  return absl::OkStatus();
}

absl::Status TakeOwnerLock(int fd, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const bool locked, TryLockByte(fd, F_WRLCK, kOwnerByte));
  if (!locked) return absl::FailedPreconditionError(absl::StrCat("shared memory ", name, " has a living owner"));
  return CheckLinked(fd, name);
}

absl::Status TakeUserLock(int fd, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const bool locked, TryLockByte(fd, F_RDLCK, kUserByte));
  if (!locked) return absl::NotFoundError(absl::StrCat("shared memory ", name, " is being removed"));
  return CheckLinked(fd, name);
}

// Keeps new owners and other removers away until `fd` is closed. False if one is present.
absl::StatusOr<bool> TakeRemoverLocks(int fd) {
  MOE_ASSIGN_OR_RETURN(const bool alone, TryLockByte(fd, F_WRLCK, kRemoverByte));
  return alone ? TryLockByte(fd, F_RDLCK, kOwnerByte) : false;
}

double GiB(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

constexpr char kRemedy[] =
    "free some with `moestro segments prune --all`, or raise its size (docker: --shm-size; compose: MOESTRO_SHM_SIZE; "
    "else mount -o remount,size=...)";

absl::Status NoSpace(const std::string& name, int64_t bytes, int64_t free) {
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s needs %.2f GiB of shared memory, /dev/shm has %.2f GiB free; %s", name, GiB(bytes), GiB(free), kRemedy));
}

// /dev/shm may be larger than the memory of the machine or the limit of the control group. Filling it would make the
// kernel kill processes.
absl::Status CheckMemory(const std::string& name, int64_t bytes) {
  MOE_ASSIGN_OR_RETURN(const AvailableMemory available, ReadAvailableMemory());
  if (bytes <= available.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s needs %.2f GiB of shared memory, %s; stop what uses it, raise the limit if there is one (docker: --memory; "
      "compose: mem_limit; systemd: MemoryMax), free some with `moestro segments prune --all`, or use a smaller model "
      "or KV pool",
      name, GiB(bytes), available.reason));
}

absl::Status CheckRoom(const std::string& name, int64_t bytes) {
  MOE_ASSIGN_OR_RETURN(const int64_t free, SharedMemory::FreeBytes());
  if (bytes > free) return NoSpace(name, bytes, free);
  return CheckMemory(name, bytes);
}

bool IsDamaged(const struct stat& info) { return (info.st_mode & 07777) == kDamagedMode; }

absl::StatusOr<int64_t> CompleteSize(int fd, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(fd, name));
  if (IsDamaged(info)) {
    return absl::UnavailableError(
        absl::StrCat("shared memory ", name, " is damaged: a process met a memory fault in it; its owner replaces it"));
  }
  if (info.st_size == 0 || (info.st_mode & S_IXUSR) != 0) {
    return absl::NotFoundError(
        absl::StrCat("shared memory ", name, " is not complete: its owner is still creating it"));
  }
  return info.st_size;
}

// Describes one of our objects from a directory scan; NOT_FOUND if it is gone.
absl::StatusOr<SharedMemory::Listing> Describe(const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const shared_memory_object object, OpenObject(name, interprocess::read_only));
  const int fd = Descriptor(object);
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(fd, name));
  constexpr int64_t kBlock = 512;  // of stat(2)
  SharedMemory::Listing listing{
      .name = name, .bytes = (info.st_mode & S_IXUSR) != 0 ? 0 : info.st_size, .memory_bytes = info.st_blocks * kBlock};
  MOE_ASSIGN_OR_RETURN(listing.owner_alive, OwnerLives(fd));
  MOE_ASSIGN_OR_RETURN(listing.attached, IsByteLocked(fd, F_WRLCK, kUserByte));
  return listing;
}

// Notes objects of other users, who can make any number of them: names only the first few.
class ForeignObjects {
 public:
  void Add(const std::string& name, const std::string& reason) {
    if (++count_ > kNamed) return;
    lines_.push_back(absl::StrCat(kShmDirectory, "/", absl::CHexEscape(name), " ", reason,
                                  ": it is left alone; its owner or root can remove it with rm"));
  }
  std::vector<std::string> Lines() && {
    if (count_ > kNamed) {
      lines_.push_back(absl::StrCat(count_ - kNamed, " more objects in ", kShmDirectory, " are left alone"));
    }
    return std::move(lines_);
  }

 private:
  static constexpr int64_t kNamed = 8;
  int64_t count_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace

SharedMemory::SharedMemory(std::string name, shared_memory_object object)
    : name_(std::move(name)), object_(std::move(object)) {}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(name_, other.name_);
  object_.swap(other.object_);
  region_.swap(other.region_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data() != nullptr) UnwatchMapping(data());
}

int SharedMemory::descriptor() const { return Descriptor(object_); }

absl::Status SharedMemory::Map(int64_t bytes, interprocess::mode_t mode) {
  const int error =
      SystemError([&] { region_ = mapped_region(object_, mode, /*offset=*/0, static_cast<size_t>(bytes)); });
  if (error != 0) return ErrnoStatus(error, absl::StrCat(name_, ": cannot map ", bytes, " bytes"));
  madvise(data(), bytes, MADV_HUGEPAGE);  // a hint: kernels without huge pages for shared memory refuse it
  madvise(data(), bytes, MADV_DONTDUMP);  // a core dump would contain all weights and the users' texts
  WatchMapping(data(), bytes, descriptor(), name_);
  return absl::OkStatus();
}

absl::StatusOr<SharedMemory> SharedMemory::Create(const std::string& name, int64_t bytes, const ReserveOptions& reserve,
                                                  int64_t reserved) {
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("shared memory ", name, " of ", bytes, " bytes"));
  MOE_ASSIGN_OR_RETURN(shared_memory_object object, CreateObject(name));
  SharedMemory memory(name, std::move(object));
  const int fd = memory.descriptor();
  // Comes before anything slow: until it is locked, the new object looks abandoned.
  if (!TakeOwnerLock(fd, name).ok()) {
    return absl::UnavailableError(absl::StrCat("shared memory ", name, " was removed while it was created; try again"));
  }
  absl::Cleanup unlink = [&] { shared_memory_object::remove(name.c_str()); };
  const int64_t first_bytes = reserved < 0 ? bytes : reserved;
  MOE_RETURN_IF_ERROR(CheckRoom(name, first_bytes));  // before the size is set, which is an error of its own
  const int error = SystemError([&] { memory.object_.truncate(bytes); });
  if (error != 0) return ErrnoStatus(error, absl::StrCat(name, ": cannot set its size"));
  MOE_RETURN_IF_ERROR(memory.Map(bytes, interprocess::read_write));
  MOE_RETURN_IF_ERROR(memory.Reserve({0, first_bytes}, reserve));
  // Until now, a process that opens the object finds it incomplete.
  if (fchmod(fd, kComplete) != 0) return ErrnoStatus(errno, absl::StrCat(name, ": cannot set its permissions"));
  std::move(unlink).Cancel();
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::Adopt(const std::string& name) {
  MOE_ASSIGN_OR_RETURN(shared_memory_object object, OpenObject(name, interprocess::read_write));
  SharedMemory memory(name, std::move(object));
  MOE_RETURN_IF_ERROR(TakeOwnerLock(memory.descriptor(), name));
  MOE_ASSIGN_OR_RETURN(const int64_t bytes, CompleteSize(memory.descriptor(), name));
  MOE_RETURN_IF_ERROR(memory.Map(bytes, interprocess::read_write));
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::Open(const std::string& name, interprocess::mode_t mode,
                                                interprocess::mode_t mapped) {
  MOE_ASSIGN_OR_RETURN(shared_memory_object object, OpenObject(name, mode));
  SharedMemory memory(name, std::move(object));
  MOE_RETURN_IF_ERROR(TakeUserLock(memory.descriptor(), name));
  MOE_ASSIGN_OR_RETURN(const int64_t bytes, CompleteSize(memory.descriptor(), name));
  MOE_RETURN_IF_ERROR(memory.Map(bytes, mapped));
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::OpenReadOnly(const std::string& name, ReadOnly kind) {
  // The descriptor's mode limits what may be done with a mapping.
  const bool liftable = kind == ReadOnly::kLiftable;
  return Open(name, liftable ? interprocess::read_write : interprocess::read_only, interprocess::read_only);
}

absl::StatusOr<SharedMemory> SharedMemory::OpenWritable(const std::string& name) {
  return Open(name, interprocess::read_write, interprocess::read_write);
}

absl::Status SharedMemory::Reserve(IndexRange bytes, const ReserveOptions& options) const {
  MOE_RETURN_IF_ERROR(CheckRoom(name_, bytes.size()));
  MOE_ASSIGN_OR_RETURN(const struct stat before, Stat(descriptor(), name_));
  const int64_t page = sysconf(_SC_PAGESIZE);
  const IndexRange pages{bytes.begin / page * page, std::min(RoundUp(bytes.end, page), size())};
  const absl::Status status = ReserveMemory(descriptor(), data(), pages, options);
  if (!absl::IsResourceExhausted(status)) return status;
  // Another process took the room that CheckRoom saw.
  MOE_ASSIGN_OR_RETURN(const int64_t free, FreeBytes());
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(descriptor(), name_));
  return NoSpace(name_, bytes.size(), free + (int64_t{info.st_blocks} - int64_t{before.st_blocks}) * 512);
}

std::vector<IndexRange> SharedMemory::Backed() const {
  std::vector<IndexRange> backed;
  for (off_t end = 0; end < size();) {
    const off_t begin = lseek(descriptor(), end, SEEK_DATA);
    if (begin < 0) break;  // no more
    end = lseek(descriptor(), begin, SEEK_HOLE);
    if (end < 0) break;
    backed.push_back({begin, end});
  }
  return backed;
}

bool SharedMemory::HasOtherOwner() const { return OwnerLives(descriptor()).value_or(false); }

bool SharedMemory::damaged() const {
  struct stat info;
  return fstat(descriptor(), &info) == 0 && IsDamaged(info);
}

absl::Status SharedMemory::Free(int64_t begin) const {
  if (begin < 0 || begin > size()) {
    return absl::InvalidArgumentError(absl::StrCat(name_, " has ", size(), " bytes, no byte ", begin));
  }
  const int64_t first = RoundUp(begin, int64_t{sysconf(_SC_PAGESIZE)});
  if (first >= size()) return absl::OkStatus();
  if (fallocate(descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, size() - first) != 0) {
    return ErrnoStatus(errno, absl::StrCat(name_, ": cannot give its memory back"));
  }
  return absl::OkStatus();
}

absl::Status SharedMemory::Unlink(const std::string& name) {
  MOE_RETURN_IF_ERROR(ValidateName(name));
  if (!shared_memory_object::remove(name.c_str()) && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat(name, ": cannot unlink"));
  }
  return absl::OkStatus();
}

absl::Status SharedMemory::UnlinkOrphan(const std::string& name) {
  const absl::StatusOr<shared_memory_object> object = OpenObject(name, interprocess::read_write);
  if (absl::IsNotFound(object.status())) return absl::OkStatus();
  MOE_RETURN_IF_ERROR(object);
  const int fd = Descriptor(*object);
  MOE_ASSIGN_OR_RETURN(const bool locked, TakeRemoverLocks(fd));
  if (!locked) {
    MOE_ASSIGN_OR_RETURN(const bool owned, OwnerLives(fd));
    if (owned) return absl::FailedPreconditionError(absl::StrCat("shared memory ", name, " has a living owner"));
    return absl::UnavailableError(absl::StrCat("shared memory ", name, " is being removed by another process"));
  }
  if (!CheckLinked(fd, name).ok()) return absl::OkStatus();  // the name may belong to a newer object by now
  return Unlink(name);
}

absl::StatusOr<bool> SharedMemory::UnlinkIfUnused(const std::string& name) {
  const absl::StatusOr<shared_memory_object> object = OpenObject(name, interprocess::read_write);
  if (absl::IsNotFound(object.status())) return false;
  MOE_RETURN_IF_ERROR(object);
  const int fd = Descriptor(*object);
  MOE_ASSIGN_OR_RETURN(const bool no_owner, TakeRemoverLocks(fd));
  if (!no_owner) return false;
  MOE_ASSIGN_OR_RETURN(const bool no_user, TryLockByte(fd, F_WRLCK, kUserByte));
  if (!no_user || !CheckLinked(fd, name).ok()) return false;
  MOE_RETURN_IF_ERROR(Unlink(name));
  return true;
}

absl::StatusOr<std::vector<SharedMemory::Listing>> SharedMemory::List(const std::string& prefix,
                                                                      std::vector<std::string>* foreign) {
  std::vector<Listing> objects;
  ForeignObjects others;
  std::error_code error;
  std::filesystem::directory_iterator entry(kShmDirectory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    struct stat info;
    if (!absl::StartsWith(name, prefix) || lstat(entry->path().c_str(), &info) != 0) continue;
    if (const std::string reason = Foreign(info); !reason.empty()) {
      others.Add(name, reason);
      continue;
    }
    absl::StatusOr<Listing> listing = Describe(name);
    if (listing.ok()) objects.push_back(*std::move(listing));
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", kShmDirectory));
  std::ranges::sort(objects, {}, &Listing::name);
  if (foreign != nullptr) *foreign = std::move(others).Lines();
  return objects;
}

absl::StatusOr<int64_t> SharedMemory::FreeBytes() {
  struct statvfs info;
  if (statvfs(kShmDirectory, &info) != 0) return absl::ErrnoToStatus(errno, kShmDirectory);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

int64_t SharedMemory::HugePageBytes() const {
  if (data() == nullptr) return 0;
  const absl::StatusOr<std::vector<MemoryMapping>> mappings = ReadMappings(0);
  if (!mappings.ok()) return 0;
  const uint64_t begin = reinterpret_cast<uintptr_t>(data());
  int64_t bytes = 0;
  for (const MemoryMapping& mapping : *mappings) {
    if (mapping.begin >= begin && mapping.begin < begin + region_.get_size()) bytes += mapping.huge_bytes;
  }
  return bytes;
}

}  // namespace moestro
