#include "common/platform/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/platform/process_memory.h"
#include "common/platform/smaps.h"

namespace moestro {
namespace {

namespace bip = boost::interprocess;

// Where the C library keeps POSIX shared-memory objects.
constexpr char kShmDirectory[] = "/dev/shm";
constexpr off_t kOwnerByte = 0;
constexpr off_t kUserByte = 1;
// Of a complete object; while it is being reserved, its owner may "execute" it as well: a mark that a crash leaves.
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

// A descriptor of its own for what `open` opens: a callable that returns a shared_memory_object.
template <typename OpenFunction>
absl::StatusOr<int> OpenDescriptor(const std::string& name, OpenFunction open) {
  MOE_RETURN_IF_ERROR(ValidateName(name));
  try {
    const bip::shared_memory_object object = open();
    const int fd = fcntl(object.get_mapping_handle().handle, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return ErrnoStatus(errno, absl::StrCat(name, ": cannot duplicate its descriptor"));
    return fd;
  } catch (const bip::interprocess_exception& e) {
    if (e.get_native_error() == ENOENT) return absl::NotFoundError(absl::StrCat("no shared memory named ", name));
    if (e.get_native_error() == EEXIST)
      return absl::AlreadyExistsError(absl::StrCat("shared memory ", name, " exists"));
    return ErrnoStatus(e.get_native_error(), name);
  }
}

absl::StatusOr<int> CreateDescriptor(const std::string& name) {
  return OpenDescriptor(name, [&] {
    return bip::shared_memory_object(bip::create_only, name.c_str(), bip::read_write, bip::permissions(kReserving));
  });
}

absl::StatusOr<int> OpenDescriptor(const std::string& name, bip::mode_t mode) {
  return OpenDescriptor(name, [&] { return bip::shared_memory_object(bip::open_only, name.c_str(), mode); });
}

struct flock ByteLock(short type, off_t byte) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

// False when someone else holds a conflicting lock. The lock lives until the last descriptor and mapping that came from
// this open() are gone, so also in a child forked meanwhile.
absl::StatusOr<bool> TryLock(int fd, short type, off_t byte) {
  struct flock lock = ByteLock(type, byte);
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  return ErrnoStatus(errno, "byte lock");
}

absl::StatusOr<bool> IsLocked(int fd, off_t byte) {
  struct flock lock = ByteLock(F_WRLCK, byte);
  if (fcntl(fd, F_OFD_GETLK, &lock) != 0) return ErrnoStatus(errno, "byte lock query");
  return lock.l_type != F_UNLCK;
}

absl::StatusOr<struct stat> Stat(int fd, const std::string& name) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, name);
  return info;
}

// UnlinkIfUnused and UnlinkOrphan lock before they unlink, so whoever holds a lock and sees the name still linked keeps
// it.
absl::Status CheckLinked(int fd, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(fd, name));
  if (info.st_nlink == 0) return absl::NotFoundError(absl::StrCat("shared memory ", name, " was just removed"));
  return absl::OkStatus();
}

absl::Status TakeOwnerLock(int fd, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const bool locked, TryLock(fd, F_WRLCK, kOwnerByte));
  if (!locked) return absl::FailedPreconditionError(absl::StrCat("shared memory ", name, " has a living owner"));
  return CheckLinked(fd, name);
}

absl::Status TakeUserLock(int fd, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const bool locked, TryLock(fd, F_RDLCK, kUserByte));
  if (!locked) return absl::NotFoundError(absl::StrCat("shared memory ", name, " is being removed"));
  return CheckLinked(fd, name);
}

double GiB(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

constexpr char kRemedy[] =
    "free some with `moestro segments prune --all`, or raise its size (docker: --shm-size; compose: MOESTRO_SHM_SIZE; "
    "else mount -o remount,size=...)";

absl::Status NoSpace(const std::string& name, int64_t bytes, int64_t free) {
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s needs %.2f GiB of shared memory, /dev/shm has %.2f GiB free; %s", name, GiB(bytes), GiB(free), kRemedy));
}

// /dev/shm may be allowed more than the machine has; filling it would make the kernel kill processes at random.
absl::Status CheckMemory(const std::string& name, int64_t bytes) {
  MOE_ASSIGN_OR_RETURN(const int64_t available, ReadAvailableMemory());
  if (bytes <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s needs %.2f GiB of shared memory, this machine has %.2f GiB of memory available; stop what uses "
      "it, free some with `moestro segments prune --all`, or use a smaller model or KV pool",
      name, GiB(bytes), GiB(available)));
}

absl::Status CheckRoom(const std::string& name, int64_t bytes) {
  MOE_ASSIGN_OR_RETURN(const int64_t free, SharedMemory::FreeBytes());
  if (bytes > free) return NoSpace(name, bytes, free);
  return CheckMemory(name, bytes);
}

// Until the end of it, whoever opens the object finds it incomplete.
absl::Status Reserve(int fd, const std::string& name, uint8_t* data, int64_t bytes, const ReserveOptions& options) {
  const absl::Status status = ReserveMemory(fd, data, bytes, options);
  if (absl::IsResourceExhausted(status)) {  // someone else took the room that CheckRoom saw
    MOE_ASSIGN_OR_RETURN(const int64_t free, SharedMemory::FreeBytes());
    MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(fd, name));
    return NoSpace(name, bytes, free + int64_t{info.st_blocks} * 512);
  }
  MOE_RETURN_IF_ERROR(status);
  if (fchmod(fd, kComplete) != 0) return ErrnoStatus(errno, absl::StrCat(name, ": cannot set its permissions"));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CompleteSize(int fd, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(fd, name));
  if (info.st_size == 0 || (info.st_mode & S_IXUSR) != 0) {
    return absl::NotFoundError(
        absl::StrCat("shared memory ", name, " is not complete: its owner is still creating it"));
  }
  return info.st_size;
}

absl::StatusOr<uint8_t*> Map(int fd, const std::string& name, int64_t bytes, int protection) {
  void* address = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat(name, ": cannot map ", bytes, " bytes"));
  madvise(address, bytes, MADV_HUGEPAGE);  // A wish: kernels without huge pages for shared memory refuse it.
  return static_cast<uint8_t*>(address);
}

// What a scan of the directory tells about one object; NOT_FOUND when it is not one, is gone or is another user's.
absl::StatusOr<SharedMemory::Listing> Describe(const std::string& name) {
  const int fd = shm_open(name.c_str(), O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return absl::NotFoundError(name);
  const absl::Cleanup close_fd = [fd] { close(fd); };
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(fd, name));
  if (!S_ISREG(info.st_mode)) return absl::NotFoundError(name);
  SharedMemory::Listing listing{.name = name, .bytes = (info.st_mode & S_IXUSR) != 0 ? 0 : info.st_size};
  MOE_ASSIGN_OR_RETURN(listing.owner_alive, IsLocked(fd, kOwnerByte));
  MOE_ASSIGN_OR_RETURN(listing.attached, IsLocked(fd, kUserByte));
  return listing;
}

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
  if (data_ != nullptr) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<SharedMemory> SharedMemory::Create(const std::string& name, int64_t bytes,
                                                  const ReserveOptions& reserve) {
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("shared memory ", name, " of ", bytes, " bytes"));
  MOE_ASSIGN_OR_RETURN(const int fd, CreateDescriptor(name));
  SharedMemory memory(name, fd, nullptr, bytes);
  // Before anything slow: until it is locked, the new object looks abandoned.
  MOE_RETURN_IF_ERROR(TakeOwnerLock(fd, name));
  absl::Cleanup unlink = [&] { shm_unlink(name.c_str()); };
  MOE_RETURN_IF_ERROR(CheckRoom(name, bytes));
  if (ftruncate(fd, bytes) != 0) return ErrnoStatus(errno, absl::StrCat(name, ": cannot set its size"));
  MOE_ASSIGN_OR_RETURN(memory.data_, Map(fd, name, bytes, PROT_READ | PROT_WRITE));
  MOE_RETURN_IF_ERROR(Reserve(fd, name, memory.data_, bytes, reserve));
  std::move(unlink).Cancel();
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::Adopt(const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const int fd, OpenDescriptor(name, bip::read_write));
  SharedMemory memory(name, fd, nullptr, 0);
  MOE_RETURN_IF_ERROR(TakeOwnerLock(fd, name));
  MOE_ASSIGN_OR_RETURN(memory.size_, CompleteSize(fd, name));
  MOE_ASSIGN_OR_RETURN(memory.data_, Map(fd, name, memory.size_, PROT_READ | PROT_WRITE));
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::OpenReadOnly(const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const int fd, OpenDescriptor(name, bip::read_only));
  SharedMemory memory(name, fd, nullptr, 0);
  MOE_RETURN_IF_ERROR(TakeUserLock(fd, name));
  MOE_ASSIGN_OR_RETURN(memory.size_, CompleteSize(fd, name));
  MOE_ASSIGN_OR_RETURN(memory.data_, Map(fd, name, memory.size_, PROT_READ));
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::OpenWritable(const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const int fd, OpenDescriptor(name, bip::read_write));
  SharedMemory memory(name, fd, nullptr, 0);
  MOE_RETURN_IF_ERROR(TakeUserLock(fd, name));
  MOE_ASSIGN_OR_RETURN(memory.size_, CompleteSize(fd, name));
  MOE_ASSIGN_OR_RETURN(memory.data_, Map(fd, name, memory.size_, PROT_READ | PROT_WRITE));
  return memory;
}

bool SharedMemory::HasOtherOwner() const { return fd_ >= 0 && IsLocked(fd_, kOwnerByte).value_or(false); }

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
  absl::StatusOr<int> fd = OpenDescriptor(name, bip::read_write);
  if (absl::IsNotFound(fd.status())) return absl::OkStatus();
  MOE_RETURN_IF_ERROR(fd);
  const absl::Cleanup close_fd = [&] { close(*fd); };
  const absl::Status owned = TakeOwnerLock(*fd, name);
  if (absl::IsNotFound(owned)) return absl::OkStatus();  // Removed meanwhile; the name may be a newer object's by now.
  MOE_RETURN_IF_ERROR(owned);
  return Unlink(name);
}

absl::StatusOr<bool> SharedMemory::UnlinkIfUnused(const std::string& name) {
  absl::StatusOr<int> fd = OpenDescriptor(name, bip::read_write);
  if (absl::IsNotFound(fd.status())) return false;
  MOE_RETURN_IF_ERROR(fd);
  const absl::Cleanup close_fd = [&] { close(*fd); };
  for (const off_t byte : {kOwnerByte, kUserByte}) {
    MOE_ASSIGN_OR_RETURN(const bool locked, TryLock(*fd, F_WRLCK, byte));
    if (!locked) return false;
  }
  MOE_ASSIGN_OR_RETURN(const struct stat info, Stat(*fd, name));
  if (info.st_nlink == 0) return false;  // Someone else removed it; the name may be a newer object's by now.
  MOE_RETURN_IF_ERROR(Unlink(name));
  return true;
}

absl::StatusOr<std::vector<SharedMemory::Listing>> SharedMemory::List(const std::string& prefix) {
  std::vector<Listing> objects;
  std::error_code error;
  std::filesystem::directory_iterator entry(kShmDirectory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!absl::StartsWith(name, prefix)) continue;
    absl::StatusOr<Listing> listing = Describe(name);
    if (listing.ok()) objects.push_back(*std::move(listing));
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", kShmDirectory));
  std::ranges::sort(objects, {}, &Listing::name);
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
