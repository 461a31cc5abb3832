#include "common/platform/lock_file.h"

#include <fcntl.h>
#include <unistd.h>

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

LockFile::~LockFile() { close(descriptor_); }

bool LockFile::TryLock(int64_t byte) {
  struct flock range = Range(F_WRLCK, byte);
  return fcntl(descriptor_, F_OFD_SETLK, &range) == 0;
}

void LockFile::Unlock(int64_t byte) {
  struct flock range = Range(F_UNLCK, byte);
  fcntl(descriptor_, F_OFD_SETLK, &range);
}

bool LockFile::IsLocked(int64_t byte) const {
  struct flock range = Range(F_WRLCK, byte);
  return fcntl(descriptor_, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

}  // namespace moestro
