// Byte locks on an open file by which processes agree, of which the kernel lets go when a process dies.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace moestro {

// Takes the lock of `type` (F_RDLCK is shared, F_WRLCK exclusive) on a byte, or lets go of it (F_UNLCK). False when
// someone else holds a conflicting lock. It lives until the last descriptor and mapping that came from this open() are
// gone, so also in a child forked meanwhile.
absl::StatusOr<bool> TryLockByte(int descriptor, short type, int64_t byte);
// Whether someone else holds a lock that conflicts with one of `type`.
absl::StatusOr<bool> IsByteLocked(int descriptor, short type, int64_t byte);

// The locks are exclusive and belong to the open file, not to the process: two of one process exclude each other, and
// any thread may let go.
class LockFile {
 public:
  explicit LockFile(int descriptor) : descriptor_(descriptor) {}
  ~LockFile();  // closes the file, and so lets go of its locks
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  bool TryLock(int64_t byte);
  void Unlock(int64_t byte);
  // By another one.
  bool IsLocked(int64_t byte) const;

 private:
  const int descriptor_;
};

}  // namespace moestro
