#include "common/telemetry/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "common/telemetry/json_log.h"

namespace moestro {

absl::Status InitLogging(const std::string& role, const LogOptions& options) {
  auto logger = std::make_shared<spdlog::logger>(role, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  if (options.format == "json") {
    logger->set_formatter(std::make_unique<JsonLogFormatter>());
  } else {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%-5l%$ [%n] %v", spdlog::pattern_time_type::utc);
  }
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);  // before the flags are checked, so that their errors are logged too
  if (options.format != "text" && options.format != "json") {
    return absl::InvalidArgumentError("--log-format " + options.format + ": use text or json");
  }
  static constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info", "warn", "error", "off"};
  if (std::find(kLevels.begin(), kLevels.end(), options.level) == kLevels.end()) {
    return absl::InvalidArgumentError("--log-level " + options.level + ": use trace, debug, info, warn, error or off");
  }
  logger->set_level(spdlog::level::from_str(options.level));
  return absl::OkStatus();
}

void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args values) {
  static constexpr std::array kLevels = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                         spdlog::level::err};
  const auto of_spdlog = kLevels[static_cast<size_t>(level)];
  if (spdlog::should_log(of_spdlog)) spdlog::log(of_spdlog, spdlog::string_view_t(fmt::vformat(format, values)));
}

}  // namespace moestro
