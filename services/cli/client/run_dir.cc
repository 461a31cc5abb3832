#include "services/cli/client/run_dir.h"

#include <unistd.h>

#include <cstdlib>

namespace moestro::cli {

std::string DefaultRunDir() {
  const char* temporary = std::getenv("TMPDIR");
  return std::string(temporary != nullptr && *temporary != '\0' ? temporary : "/tmp") + "/moestro-" +
         std::to_string(getuid());
}

}  // namespace moestro::cli
