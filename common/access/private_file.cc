#include "common/access/private_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/read_file.h"

namespace moestro::access {

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t most) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return absl::NotFoundError(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("is not a file");
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return absl::PermissionDeniedError("belongs to another user, who could change it: chown it to this user or root");
  }
  if ((info.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)) != 0) {
    return absl::PermissionDeniedError("others may read it, or write to it: chmod 600 it (640 to let a group read it)");
  }
  if (static_cast<size_t>(info.st_size) > most) {
    return absl::InvalidArgumentError(absl::StrCat("has more than ", most, " bytes"));
  }
  return ReadFile(path);
}

}  // namespace moestro::access
