#include "common/platform/lock_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace moestro {
namespace {

struct flock Range(short type, int64_t byte) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  return range;
}

}  // namespace

absl::StatusOr<bool> TryLockByte(int descriptor, short type, int64_t byte) {
  struct flock range = Range(type, byte);
  if (fcntl(descriptor, F_OFD_SETLK, &range) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  return absl::ErrnoToStatus(errno, "byte lock");
}

absl::StatusOr<bool> IsByteLocked(int descriptor, short type, int64_t byte) {
  struct flock range = Range(type, byte);
  if (fcntl(descriptor, F_OFD_GETLK, &range) != 0) return absl::ErrnoToStatus(errno, "byte lock query");
  return range.l_type != F_UNLCK;
}

LockFile::~LockFile() { close(descriptor_); }

bool LockFile::TryLock(int64_t byte) { return TryLockByte(descriptor_, F_WRLCK, byte).value_or(false); }

void LockFile::Unlock(int64_t byte) { TryLockByte(descriptor_, F_UNLCK, byte).IgnoreError(); }

bool LockFile::IsLocked(int64_t byte) const { return IsByteLocked(descriptor_, F_WRLCK, byte).value_or(false); }

}  // namespace moestro
