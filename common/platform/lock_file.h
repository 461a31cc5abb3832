// Byte locks on an open file, through which processes agree. The kernel releases them when a process dies.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace moestro {

// Takes the lock of `type` (F_RDLCK is shared, F_WRLCK exclusive) on a byte, or releases it (F_UNLCK). False if another
// open file holds a conflicting lock. The lock lives until the last descriptor and mapping that came from this open()
// are gone, so a child forked meanwhile keeps it too.
absl::StatusOr<bool> TryLockByte(int descriptor, short type, int64_t byte);
// Whether another open file holds a lock that conflicts with one of `type`.
absl::StatusOr<bool> IsByteLocked(int descriptor, short type, int64_t byte);

// The locks are exclusive and belong to the open file, not to the process: two files of one process exclude each other,
// and any thread may unlock.
class LockFile {
 public:
  explicit LockFile(int descriptor) : descriptor_(descriptor) {}
  ~LockFile();  // closes the file, which releases its locks
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  bool TryLock(int64_t byte);
  void Unlock(int64_t byte);
  // By another open file.
  bool IsLocked(int64_t byte) const;

 private:
  const int descriptor_;
};

}  // namespace moestro
