// Process-wide logging: LogInfo("{} tokens", count), with fmt's formats, checked when they are compiled. Thread-safe.
//
// A message about one request begins with its id, in every role: LogInfo("[{}] ...", request_id, ...). So a request can
// be traced through the node's logs. No other message begins with a bracket.
//
// A source that includes spdlog compiles all of fmt's formatting again, 3 to 5 s: only log.cc does.
#pragma once

#include <fmt/core.h>

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

enum class LogLevel { kDebug, kInfo, kWarning, kError };
// Writes nothing if the level is below that of InitLogging.
void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args values);

template <typename... Values>
void LogDebug(fmt::format_string<Values...> format, const Values&... values) {
  WriteLog(LogLevel::kDebug, format, fmt::make_format_args(values...));
}
template <typename... Values>
void LogInfo(fmt::format_string<Values...> format, const Values&... values) {
  WriteLog(LogLevel::kInfo, format, fmt::make_format_args(values...));
}
template <typename... Values>
void LogWarning(fmt::format_string<Values...> format, const Values&... values) {
  WriteLog(LogLevel::kWarning, format, fmt::make_format_args(values...));
}
template <typename... Values>
void LogError(fmt::format_string<Values...> format, const Values&... values) {
  WriteLog(LogLevel::kError, format, fmt::make_format_args(values...));
}

}  // namespace moestro
