#include "services/router/config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/process/flag_check.h"
#include "common/process/server_options.h"

namespace moestro::router {
namespace {

// An address that others reach needs keys, or the word of the operator.
absl::Status CheckExposure(const RouterConfig& config) {
  if (config.allow_anonymous && !config.keys_file.empty()) {
    return absl::InvalidArgumentError("--allow-anonymous: says that nobody needs a key; leave it or --keys-file out");
  }
  if (!config.keys_file.empty() || config.allow_anonymous) return absl::OkStatus();
  const bool grpc_is_open = !IsLoopback(config.grpc_address) && config.tls.client_ca.empty();
  const bool http_is_open =
      !config.http_address.empty() && !IsLoopback(config.http_address) && config.tls.client_ca.empty();
  if (!grpc_is_open && !http_is_open) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      grpc_is_open ? "--grpc-address " + config.grpc_address : "--http-address " + config.http_address,
      ": others can reach it, and nobody needs a key: make keys (moestro keys add) and set --keys-file, use "
      "127.0.0.1:PORT, ask for certificates (--tls-client-ca), or set --allow-anonymous if something in front lets in "
      "the right clients only"));
}

}  // namespace

absl::Status ValidateRouterConfig(const RouterConfig& config) {
  MOE_RETURN_IF_ERROR(ValidateNodeOptions(config.node));
  if (config.grpc_address.find(':') == std::string::npos) {
    return absl::InvalidArgumentError("--grpc-address " + config.grpc_address +
                                      ": use HOST:PORT (port 0: any free one)");
  }
  if (!config.http_address.empty() && config.http_address.find(':') == std::string::npos) {
    return absl::InvalidArgumentError("--http-address " + config.http_address +
                                      ": use HOST:PORT (port 0: any free one), or off");
  }
  MOE_RETURN_IF_ERROR(CheckFlagRange("--http-connections", config.http_connections, 1, 1 << 20));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--http-keep-alive-seconds", config.http_keep_alive_seconds, 0, 3600));
  MOE_RETURN_IF_ERROR(access::CheckTlsFiles(config.tls));
  MOE_RETURN_IF_ERROR(CheckExposure(config));
  if (std::ranges::count(config.model_aliases, "") > 0) {
    return absl::InvalidArgumentError("--model-aliases: has an empty name; write NAME,NAME without a comma at the end");
  }
  MOE_RETURN_IF_ERROR(CheckFlagRange("--default-max-tokens", config.default_max_tokens, 0, 1 << 24));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--batch-in-flight", config.batch_in_flight, 1, 4096));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--queue-limit", config.queue_limit, 1, 1 << 16));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--write-stall-seconds", config.write_stall_seconds, 1, 3600));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--chunked-below-tokens", config.chunked_below_tokens, 0, 1 << 24));
  MOE_RETURN_IF_ERROR(
      CheckFlagRange("--decode-idle-window-seconds", config.decode_idle_window_seconds, 0, 7 * 24 * 3600));
  return CheckFlagRange("--recovery-seconds", config.recovery_seconds, 0, 3600);
}

PathSettings PathSettingsOf(const RouterConfig& config) {
  return {.unified = config.mode == PathMode::kUnified,
          .predicted = config.path_policy == PathRule::kPredicted,
          .chunked_below_tokens = static_cast<uint32_t>(config.chunked_below_tokens),
          .decode_idle_window = std::chrono::seconds(config.decode_idle_window_seconds)};
}

}  // namespace moestro::router
