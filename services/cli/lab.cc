#include "services/cli/lab.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "common/process/process.h"

namespace moestro::cli {

int RunLab(char** argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string lab = (self.parent_path() / "moestro-lab").string();
  ::execv(lab.c_str(), argv);
  std::fprintf(stderr, "moestro: %s is a command of %s: %s; build it: cmake --build BUILD_DIR --target moestro-lab\n",
               argv[1], lab.c_str(), std::strerror(errno));
  return kExitUnavailable;
}

}  // namespace moestro::cli
