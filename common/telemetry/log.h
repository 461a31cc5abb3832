// Process-wide logging set-up. Log with spdlog's own functions: spdlog::info("...", ...).
//
// A message about one request begins with its id, in every role: spdlog::info("[{}] ...", request_id, ...). So a
// request can be traced through the node's logs. No other message begins with a bracket.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace moestro {

struct LogOptions {
  std::string level = "info";   // trace, debug, info, warn, error, off
  std::string format = "text";  // text, json
};

// One line per event on stderr. text: time (UTC), level, role, message. json: one object per line with time, level,
// role, request_id if the message has one, and message without it. INVALID_ARGUMENT names the wrong flag.
absl::Status InitLogging(const std::string& role, const LogOptions& options);

}  // namespace moestro
