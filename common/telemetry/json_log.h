// Log lines as JSON.
#pragma once

#include <spdlog/formatter.h>

#include <memory>

namespace moestro {

// One object a line, its keys in this order: time (UTC, milliseconds), level, role (the logger's name), request_id if
// the message begins with "[<id>] ", message without it. Bytes that are not UTF-8 become U+FFFD. No state: copies are
// alike.
class JsonLogFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& event, spdlog::memory_buf_t& line) override;
  std::unique_ptr<spdlog::formatter> clone() const override;
};

}  // namespace moestro
