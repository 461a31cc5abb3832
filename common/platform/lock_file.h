// Byte locks on an open file by which processes agree, of which the kernel lets go when a process dies.
#pragma once

#include <cstdint>

namespace moestro {

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
