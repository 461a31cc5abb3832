#include "common/telemetry/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

namespace moestro {

absl::Status InitLogging(const std::string& role, const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>(role, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%-5l%$ [%n] %v", spdlog::pattern_time_type::utc);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);  // before the level is checked: that error is to be logged too
  static constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info", "warn", "error", "off"};
  if (std::find(kLevels.begin(), kLevels.end(), level) == kLevels.end()) {
    return absl::InvalidArgumentError("--log-level " + level + ": use trace, debug, info, warn, error or off");
  }
  logger->set_level(spdlog::level::from_str(level));
  return absl::OkStatus();
}

}  // namespace moestro
