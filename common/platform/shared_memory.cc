#include "common/platform/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
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

// Why `name` could not be opened: the reason for errno `error`.
absl::Status OpenError(int error, const std::string& name) {
  struct stat info;
  if (error == ENOENT || lstat(absl::StrCat(kShmDirectory, "/", name).c_str(), &info) != 0) return NotThere(name);
  MOE_RETURN_IF_ERROR(CheckOurs(info, name));
  return ErrnoStatus(error, name);
}

absl::StatusOr<int> OpenDescriptor(const std::string& name, int mode) {
  MOE_RETURN_IF_ERROR(ValidateName(name));
  // O_NONBLOCK: another user may have made a pipe of that name, and opening it would wait for its other end.
  const int fd = shm_open(name.c_str(), mode | O_NONBLOCK | O_CLOEXEC, 0);
  if (fd < 0) return OpenError(errno, name);
  absl::Cleanup close_fd = [fd] { close(fd); };
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(fd, name));
  MOE_RETURN_IF_ERROR(CheckOurs(info, name));
  std::move(close_fd).Cancel();
  return fd;
}

absl::StatusOr<int> CreateDescriptor(const std::string& name) {
  MOE_RETURN_IF_ERROR(ValidateName(name));
  const int fd = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kReserving);
  if (fd >= 0) {
    fchmod(fd, kReserving);  // regardless of the umask
    return fd;
  }
  if (errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat("shared memory ", name, " exists"));
  return ErrnoStatus(errno, name);
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

// Until this ends, a process that opens the object finds it incomplete.
absl::Status Reserve(int fd, const std::string& name, uint8_t* data, int64_t bytes, const ReserveOptions& options) {
  const absl::Status status = ReserveMemory(fd, data, bytes, options);
  if (absl::IsResourceExhausted(status)) {  // another process took the room that CheckRoom saw
    MOE_ASSIGN_OR_RETURN(const int64_t free, SharedMemory::FreeBytes());
    MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(fd, name));
    return NoSpace(name, bytes, free + int64_t{info.st_blocks} * 512);
  }
  MOE_RETURN_IF_ERROR(status);
  if (fchmod(fd, kComplete) != 0) return ErrnoStatus(errno, absl::StrCat(name, ": cannot set its permissions"));
  return absl::OkStatus();
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

absl::StatusOr<uint8_t*> Map(int fd, const std::string& name, int64_t bytes, int protection) {
  void* address = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat(name, ": cannot map ", bytes, " bytes"));
  madvise(address, bytes, MADV_HUGEPAGE);  // a hint: kernels without huge pages for shared memory refuse it
  madvise(address, bytes, MADV_DONTDUMP);  // a core dump would contain all weights and the users' texts
  WatchMapping(static_cast<uint8_t*>(address), bytes, fd, name);
  return static_cast<uint8_t*>(address);
}

// Describes one of our objects from a directory scan; NOT_FOUND if it is gone.
absl::StatusOr<SharedMemory::Listing> Describe(const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const int fd, OpenDescriptor(name, O_RDONLY));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(fd, name));
  SharedMemory::Listing listing{.name = name, .bytes = (info.st_mode & S_IXUSR) != 0 ? 0 : info.st_size};
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

SharedMemory::SharedMemory(std::string name, int fd, uint8_t* data, int64_t size)
    : name_(std::move(name)), fd_(fd), data_(data), size_(size) {}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) {
    UnwatchMapping(data_);
    munmap(data_, size_);
  }
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<SharedMemory> SharedMemory::Create(const std::string& name, int64_t bytes,
                                                  const ReserveOptions& reserve) {
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("shared memory ", name, " of ", bytes, " bytes"));
  MOE_ASSIGN_OR_RETURN(const int fd, CreateDescriptor(name));
  SharedMemory memory(name, fd, nullptr, bytes);
  // Comes before anything slow: until it is locked, the new object looks abandoned.
  if (!TakeOwnerLock(fd, name).ok()) {
    return absl::UnavailableError(absl::StrCat("shared memory ", name, " was removed while it was created; try again"));
  }
  absl::Cleanup unlink = [&] { shm_unlink(name.c_str()); };
  MOE_RETURN_IF_ERROR(CheckRoom(name, bytes));
  if (ftruncate(fd, bytes) != 0) return ErrnoStatus(errno, absl::StrCat(name, ": cannot set its size"));
  MOE_ASSIGN_OR_RETURN(memory.data_, Map(fd, name, bytes, PROT_READ | PROT_WRITE));
  MOE_RETURN_IF_ERROR(Reserve(fd, name, memory.data_, bytes, reserve));
  std::move(unlink).Cancel();
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::Adopt(const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const int fd, OpenDescriptor(name, O_RDWR));
  SharedMemory memory(name, fd, nullptr, 0);
  MOE_RETURN_IF_ERROR(TakeOwnerLock(fd, name));
  MOE_ASSIGN_OR_RETURN(memory.size_, CompleteSize(fd, name));
  MOE_ASSIGN_OR_RETURN(memory.data_, Map(fd, name, memory.size_, PROT_READ | PROT_WRITE));
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::Open(const std::string& name, int mode, int protection) {
  MOE_ASSIGN_OR_RETURN(const int fd, OpenDescriptor(name, mode));
  SharedMemory memory(name, fd, nullptr, 0);
  MOE_RETURN_IF_ERROR(TakeUserLock(fd, name));
  MOE_ASSIGN_OR_RETURN(memory.size_, CompleteSize(fd, name));
  MOE_ASSIGN_OR_RETURN(memory.data_, Map(fd, name, memory.size_, protection));
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::OpenReadOnly(const std::string& name, ReadOnly kind) {
  // The descriptor's mode limits what may be done with a mapping.
  return Open(name, kind == ReadOnly::kLiftable ? O_RDWR : O_RDONLY, PROT_READ);
}

absl::StatusOr<SharedMemory> SharedMemory::OpenWritable(const std::string& name) {
  return Open(name, O_RDWR, PROT_READ | PROT_WRITE);
}

bool SharedMemory::HasOtherOwner() const { return fd_ >= 0 && OwnerLives(fd_).value_or(false); }

bool SharedMemory::damaged() const {
  struct stat info;
  return fd_ >= 0 && fstat(fd_, &info) == 0 && IsDamaged(info);
}

absl::Status SharedMemory::Free(int64_t begin) const {
  if (begin < 0 || begin > size_) {
    return absl::InvalidArgumentError(absl::StrCat(name_, " has ", size_, " bytes, no byte ", begin));
  }
  const int64_t first = RoundUp(begin, int64_t{sysconf(_SC_PAGESIZE)});
  if (first >= size_) return absl::OkStatus();
  if (fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, size_ - first) != 0) {
    return ErrnoStatus(errno, absl::StrCat(name_, ": cannot give its memory back"));
  }
  return absl::OkStatus();
}

absl::Status SharedMemory::Unlink(const std::string& name) {
  MOE_RETURN_IF_ERROR(ValidateName(name));
  if (shm_unlink(name.c_str()) != 0 && errno != ENOENT)
    return ErrnoStatus(errno, absl::StrCat(name, ": cannot unlink"));
  return absl::OkStatus();
}

absl::Status SharedMemory::UnlinkOrphan(const std::string& name) {
  absl::StatusOr<int> fd = OpenDescriptor(name, O_RDWR);
  if (absl::IsNotFound(fd.status())) return absl::OkStatus();
  MOE_RETURN_IF_ERROR(fd);
  const absl::Cleanup close_fd = [&] { close(*fd); };
  MOE_ASSIGN_OR_RETURN(const bool locked, TakeRemoverLocks(*fd));
  if (!locked) {
    MOE_ASSIGN_OR_RETURN(const bool owned, OwnerLives(*fd));
    if (owned) return absl::FailedPreconditionError(absl::StrCat("shared memory ", name, " has a living owner"));
    return absl::UnavailableError(absl::StrCat("shared memory ", name, " is being removed by another process"));
  }
  if (!CheckLinked(*fd, name).ok()) return absl::OkStatus();  // the name may belong to a newer object by now
  return Unlink(name);
}

absl::StatusOr<bool> SharedMemory::UnlinkIfUnused(const std::string& name) {
  absl::StatusOr<int> fd = OpenDescriptor(name, O_RDWR);
  if (absl::IsNotFound(fd.status())) return false;
  MOE_RETURN_IF_ERROR(fd);
  const absl::Cleanup close_fd = [&] { close(*fd); };
  MOE_ASSIGN_OR_RETURN(const bool no_owner, TakeRemoverLocks(*fd));
  if (!no_owner) return false;
  MOE_ASSIGN_OR_RETURN(const bool no_user, TryLockByte(*fd, F_WRLCK, kUserByte));
  if (!no_user || !CheckLinked(*fd, name).ok()) return false;
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
  if (data_ == nullptr) return 0;
  const absl::StatusOr<std::vector<MemoryMapping>> mappings = ReadMappings(0);
  if (!mappings.ok()) return 0;
  const uint64_t begin = reinterpret_cast<uintptr_t>(data_);
  int64_t bytes = 0;
  for (const MemoryMapping& mapping : *mappings) {
    if (mapping.begin >= begin && mapping.begin < begin + size_) bytes += mapping.huge_bytes;
  }
  return bytes;
}

}  // namespace moestro
