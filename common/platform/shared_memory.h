// Named POSIX shared-memory objects with crash-safe ownership.
//
// Byte-range locks on an object's file record its life. The kernel drops them when a process dies, in whatever way. The
// owner, which created or adopted the object, holds byte 0 exclusively. Every process that maps the object shares byte
// 1. A remover holds byte 2 exclusively and shares byte 0: this keeps owners away without being one. So `segments
// list|prune` recognises leftovers without trusting process ids. The locks belong to the open file, not to the process:
// a child forked (and not exec'd) while an object is mapped keeps them alive too.
//
// Any user may put anything into /dev/shm. An object of another user, or one that others may open, is never opened,
// changed or removed. All functions treat it as absent, except that Create finds its name taken.
//
// Names are plain file names; anything else is INVALID_ARGUMENT. Static functions are thread-safe; a SharedMemory is
// not.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/platform/reserve.h"

namespace moestro {

class SharedMemory {
 public:
  // Whether mprotect may make a read-only mapping writable. GPU drivers register only writable memory, so the caller
  // that registers lifts the protection for that time.
  enum class ReadOnly { kForGood, kLiftable };

  // Creates `name` (without the leading slash): reserves memory now, maps `bytes` writable, asks for huge pages, takes
  // the owner lock. RESOURCE_EXHAUSTED, instead of SIGBUS later, states the bytes needed, the bytes free and the
  // remedy. The first `reserved` bytes have memory (-1: all). Nobody may touch the others before Reserve. A failure
  // leaves neither name nor memory. ALREADY_EXISTS if the name is taken, UNAVAILABLE if the object was removed before
  // it was locked. The bytes are zero.
  static absl::StatusOr<SharedMemory> Create(const std::string& name, int64_t bytes, const ReserveOptions& reserve = {},
                                             int64_t reserved = -1);
  // Becomes the owner of an existing object and maps it writable. NOT_FOUND, also if its creation never finished;
  // FAILED_PRECONDITION if another owner lives; UNAVAILABLE if it is damaged. UnlinkIfUnused removes unfinished and
  // damaged ones.
  static absl::StatusOr<SharedMemory> Adopt(const std::string& name);
  // Maps an existing object as a user: read-only (a write through it faults) or writable. NOT_FOUND, also while the
  // owner is still reserving it; UNAVAILABLE if it is damaged.
  static absl::StatusOr<SharedMemory> OpenReadOnly(const std::string& name, ReadOnly kind = ReadOnly::kForGood);
  static absl::StatusOr<SharedMemory> OpenWritable(const std::string& name);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();  // unmaps; never unlinks

  const std::string& name() const { return name_; }
  uint8_t* data() const { return static_cast<uint8_t*>(region_.get_address()); }
  int64_t size() const { return static_cast<int64_t>(region_.get_size()); }

  // For the owner: reserves memory for further bytes, in whole pages. Errors as of Create; those that have memory
  // by then keep it.
  absl::Status Reserve(IndexRange bytes, const ReserveOptions& options) const;

  // The bytes that have memory, ascending.
  std::vector<IndexRange> Backed() const;

  // For a user: whether the owning process is alive. False for the owner itself.
  bool HasOtherOwner() const;

  // Whether a process met a memory fault in the object (memory_fault.h). Nobody can open it any more: its owner must
  // replace it, and its users should unmap it. A system call.
  bool damaged() const;

  // Returns the memory from byte `begin`, rounded up to a page, to the system, for all processes that map the object.
  // It then reads as zeros; later writes take memory again.
  absl::Status Free(int64_t begin) const;

  // Removes a name; existing mappings stay valid. OK if it does not exist.
  static absl::Status Unlink(const std::string& name);

  // Removes `name` unless an owner lives, which is FAILED_PRECONDITION; users may have it mapped. OK if it does not
  // exist, UNAVAILABLE if another process is removing it. Safe against a concurrent Create or Adopt: either that call
  // fails, or the name stays.
  static absl::Status UnlinkOrphan(const std::string& name);

  // Removes `name` unless an owner lives or a process has it mapped; true if removed. Safe against a concurrent Create,
  // Adopt or Open: either that call fails, or the name stays.
  static absl::StatusOr<bool> UnlinkIfUnused(const std::string& name);

  struct Listing {
    std::string name;
    int64_t bytes = 0;         // 0 while the owner is still reserving it
    int64_t memory_bytes = 0;  // that it takes; less than `bytes` where a part has no memory yet, or was freed
    bool owner_alive = false;
    bool attached = false;  // a process other than the owner has it mapped
  };
  // All objects of this user whose name begins with `prefix`, sorted by name. `foreign` receives a few log lines about
  // objects of others: what, why and the remedy.
  static absl::StatusOr<std::vector<Listing>> List(const std::string& prefix,
                                                   std::vector<std::string>* foreign = nullptr);

  // Bytes that /dev/shm can still take. Create also needs that much available memory.
  static absl::StatusOr<int64_t> FreeBytes();

  // Bytes of this mapping that huge pages back now, from /proc/self/smaps (ShmemPmdMapped); 0 if none.
  int64_t HugePageBytes() const;

 private:
  SharedMemory(std::string name, boost::interprocess::shared_memory_object object);
  // Opens as a user: the mode of the object's descriptor, and that of the mapping.
  static absl::StatusOr<SharedMemory> Open(const std::string& name, boost::interprocess::mode_t mode,
                                           boost::interprocess::mode_t mapped);
  int descriptor() const;  // holds the locks; -1 for an empty object
  absl::Status Map(int64_t bytes, boost::interprocess::mode_t mode);
  std::string name_;
  boost::interprocess::shared_memory_object object_;
  boost::interprocess::mapped_region region_;  // goes before its object, whose descriptor the fault handler marks
};

}  // namespace moestro
