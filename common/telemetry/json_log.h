// Log lines as JSON.
#pragma once

#include <spdlog/formatter.h>

#include <memory>

namespace moestro {

// One object per line, with keys in this order: time (UTC, milliseconds), level, role (the logger's name), request_id
// if the message begins with "[<id>] ", message without it. Bytes that are not UTF-8 become U+FFFD. Stateless: copies
// are equivalent.
class JsonLogFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& event, spdlog::memory_buf_t& line) override;
  std::unique_ptr<spdlog::formatter> clone() const override;
};

}  // namespace moestro
