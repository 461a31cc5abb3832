// Named POSIX shared-memory objects with crash-safe ownership.
//
// An object's life is told by byte-range locks on its file, which the kernel drops when a process dies, however it
// dies: byte 0 is held exclusively by the owner (who created or adopted it), byte 1 is shared by everyone who has it
// mapped. Who removes an object holds byte 2 exclusively and shares byte 0: that keeps owners away and is none. So
// `segments list|prune` knows what is left over without trusting process ids. The locks belong to the open file, not to
// the process: a child forked (and not exec'd) while an object is mapped keeps them alive too.
//
// Anybody may put anything into /dev/shm. An object of another user, or one that others may open, is never opened,
// changed or removed: all functions take it for absent, but for Create, whose name it takes.
//
// Names are plain file names; anything else is INVALID_ARGUMENT. Static functions are thread-safe; one SharedMemory is
// not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/platform/reserve.h"

namespace moestro {

class SharedMemory {
 public:
  // Whether mprotect may make a read-only mapping writable. Drivers of GPUs register only memory that may be written:
  // who registers lifts the protection for as long as that takes.
  enum class ReadOnly { kForGood, kLiftable };

  // Creates `name` (without the leading slash), reserves all of `bytes` now (RESOURCE_EXHAUSTED with what is needed,
  // what is free and the remedy, never SIGBUS later), maps it writable, asks for huge pages, takes the owner lock. On
  // failure the name and the memory are gone again. ALREADY_EXISTS if the name is taken, UNAVAILABLE if someone removed
  // the object before it was locked. The bytes are zero.
  static absl::StatusOr<SharedMemory> Create(const std::string& name, int64_t bytes,
                                             const ReserveOptions& reserve = {});
  // Takes over an existing object as its owner, mapped writable. NOT_FOUND; FAILED_PRECONDITION if another owner lives.
  // An object whose creation never finished is NOT_FOUND, one that is damaged UNAVAILABLE; UnlinkIfUnused removes both.
  static absl::StatusOr<SharedMemory> Adopt(const std::string& name);
  // Maps an existing object as a user: read-only (writing through it faults) or writable. NOT_FOUND, also
  // while the owner is still reserving it; UNAVAILABLE if it is damaged.
  static absl::StatusOr<SharedMemory> OpenReadOnly(const std::string& name, ReadOnly kind = ReadOnly::kForGood);
  static absl::StatusOr<SharedMemory> OpenWritable(const std::string& name);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();  // unmaps; never unlinks

  const std::string& name() const { return name_; }
  uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }

  // For a user: whether the process that owns the object is still there. False for the owner itself.
  bool HasOtherOwner() const;

  // Whether a process met a memory fault in the object (memory_fault.h). It is for its owner to replace: nobody can
  // open it any more, and who has it mapped should let go. A system call.
  bool damaged() const;

  // Gives the memory from byte `begin` on, rounded up to a whole page, back to the system, for everyone who has the
  // object mapped: it reads as zeros, and what is written from then on takes memory again.
  absl::Status Free(int64_t begin) const;

  // Removes a name; existing mappings live on. OK if it was not there.
  static absl::Status Unlink(const std::string& name);

  // Removes `name` unless an owner lives, which is FAILED_PRECONDITION; users may have it mapped. OK if it was not
  // there, UNAVAILABLE if another process is removing it. Safe against a concurrent Create or Adopt: either it fails,
  // or the name stays.
  static absl::Status UnlinkOrphan(const std::string& name);

  // Removes `name` unless an owner lives or someone has it mapped; true if it did. Safe against a concurrent Create,
  // Adopt or Open: either they fail, or the name stays.
  static absl::StatusOr<bool> UnlinkIfUnused(const std::string& name);

  struct Listing {
    std::string name;
    int64_t bytes = 0;  // 0 while the owner is still reserving it
    bool owner_alive = false;
    bool attached = false;  // someone besides the owner has it mapped
  };
  // All objects of this user whose name begins with `prefix`, sorted by name. `foreign` gets a few lines about those
  // that are left alone, fit for a log: what, why and the remedy.
  static absl::StatusOr<std::vector<Listing>> List(const std::string& prefix,
                                                   std::vector<std::string>* foreign = nullptr);

  // Bytes that /dev/shm can still take now. Create also needs that much available memory.
  static absl::StatusOr<int64_t> FreeBytes();

  // Bytes of this mapping that the kernel backs with huge pages now, from /proc/self/smaps (ShmemPmdMapped); 0 when
  // none.
  int64_t HugePageBytes() const;

 private:
  SharedMemory(std::string name, int fd, uint8_t* data, int64_t size);
  // As a user, with a mode of open() and a protection of mmap().
  static absl::StatusOr<SharedMemory> Open(const std::string& name, int mode, int protection);
  std::string name_;
  int fd_ = -1;
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace moestro
