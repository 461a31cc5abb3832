// Process-wide logging set-up. Log with spdlog's own functions: spdlog::info("...", ...).
#pragma once

#include <string>

#include "absl/status/status.h"

namespace moestro {

// One line per event on stderr: time (UTC), level, role, message. level: trace, debug, info, warn, error, off;
// INVALID_ARGUMENT otherwise.
absl::Status InitLogging(const std::string& role, const std::string& level);

}  // namespace moestro
