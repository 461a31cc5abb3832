// Captures the log lines during its lifetime.
#pragma once

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace moestro {

class LogCapture {
 public:
  LogCapture() { spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink_)); }
  ~LogCapture() { spdlog::set_default_logger(former_); }

  std::vector<std::string> lines() const { return absl::StrSplit(text_.str(), '\n', absl::SkipEmpty()); }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::sinks::sink> sink_ = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
  const std::shared_ptr<spdlog::logger> former_ = spdlog::default_logger();
};

}  // namespace moestro
