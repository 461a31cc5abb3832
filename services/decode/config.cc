#include "services/decode/config.h"

#include <algorithm>
#include <string>

#include "common/base/status.h"
#include "common/device/device_name.h"
#include "common/kv/format.h"
#include "common/process/flag_check.h"

namespace moestro::decode {

std::optional<int> DecodeConfig::cuda_ordinal() const {
  const std::optional<device::DeviceName> name = device::ParseDeviceName(device);
  return name ? name->cuda_ordinal : std::nullopt;
}

absl::Status ValidateDecodeConfig(const DecodeConfig& config) {
  MOE_RETURN_IF_ERROR(ValidateNodeOptions(config.node));
  MOE_RETURN_IF_ERROR(ValidateCpuOptions(config.cpu));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--max-batch", config.max_batch, 1, 64));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--itl-bound-ms", config.itl_bound_ms, 1, 60000));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--max-chunk-tokens", config.max_chunk_tokens, 1, 8192));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--reserve-ahead-tokens", config.reserve_ahead_tokens, 1, 1 << 20));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--kv-tokens", config.kv_tokens, 0, int64_t{1} << 32));
  if (config.device != "none" && !device::ParseDeviceName(config.device)) {
    return absl::InvalidArgumentError("--device " + config.device + ": use none, host or cuda:N (cuda: the first GPU)");
  }
  MOE_RETURN_IF_ERROR(CheckFlagRange("--expert-cache-bytes", config.expert_cache_bytes, 0, int64_t{1} << 50));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--device-pin-bytes", config.pin_bytes, 0, int64_t{1} << 50));
  if (config.expert_cache_bytes > 0 && config.device == "none") {
    return absl::InvalidArgumentError(
        "--expert-cache-bytes: a device holds the experts, but --device is none; choose a device");
  }
  if (config.expert_schedule != experts::Schedule::kFixed && config.expert_cache_bytes == 0) {
    return absl::InvalidArgumentError(
        "--expert-schedule: the device holds no experts to schedule; set --expert-cache-bytes");
  }
  return CheckFlagRange("--lease-timeout-seconds", config.lease_timeout_seconds, 1, 86400);
}

int64_t ChooseKvTokens(int64_t max_context_tokens, int64_t bytes_per_token, int64_t free_bytes) {
  constexpr int64_t kMostTokens = 65536;
  const int64_t fitting = free_bytes / 4 / bytes_per_token;
  return std::max(kv::kPageTokens, std::min({2 * max_context_tokens, kMostTokens, fitting}));
}

}  // namespace moestro::decode
