#include "common/telemetry/json_log.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace moestro {
namespace {

// Removes "[<id>] " from the start of the message and returns the id; empty if absent. An id has no blanks.
std::string_view TakeRequestId(std::string_view& message) {
  if (!message.starts_with('[')) return {};
  const size_t end = message.find_first_of(" ]");
  if (end == std::string_view::npos || !message.substr(end).starts_with("] ")) return {};
  const std::string_view id = message.substr(1, end - 1);
  message.remove_prefix(end + 2);
  return id;
}

std::string_view View(spdlog::string_view_t text) { return {text.data(), text.size()}; }

}  // namespace

void JsonLogFormatter::format(const spdlog::details::log_msg& event, spdlog::memory_buf_t& line) {
  std::string_view message = View(event.payload);
  const std::string_view request_id = TakeRequestId(message);
  const auto since_epoch = std::chrono::duration_cast<std::chrono::milliseconds>(event.time.time_since_epoch());
  const absl::Time time = absl::UnixEpoch() + absl::FromChrono(since_epoch);

  nlohmann::ordered_json json;
  json["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  json["level"] = View(spdlog::level::to_string_view(event.level));
  json["role"] = View(event.logger_name);
  if (!request_id.empty()) json["request_id"] = request_id;
  json["message"] = message;
  const std::string text = json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace) + "\n";
  line.append(text.data(), text.data() + text.size());
}

std::unique_ptr<spdlog::formatter> JsonLogFormatter::clone() const { return std::make_unique<JsonLogFormatter>(); }

}  // namespace moestro
