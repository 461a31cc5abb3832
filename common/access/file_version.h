// Which file stands at a path, as of when: whoever follows a file compares versions of it.
#pragma once

#include <sys/stat.h>

#include <string>

namespace moestro::access {

struct FileVersion {
  // The version that is there now; a file that is absent, or cannot be looked at, has none.
  static FileVersion Of(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return {};
    return {.inode = info.st_ino, .bytes = info.st_size, .modified = info.st_mtim, .changed = info.st_ctim};
  }
  bool operator==(const FileVersion& other) const {
    const auto same = [](const timespec& a, const timespec& b) {
      return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
    };
    return inode == other.inode && bytes == other.bytes && same(modified, other.modified) &&
           same(changed, other.changed);
  }

  ino_t inode = 0;
  off_t bytes = 0;
  timespec modified{};
  timespec changed{};
};

}  // namespace moestro::access
