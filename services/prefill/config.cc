#include "services/prefill/config.h"

#include "common/base/status.h"
#include "common/device/cuda/device_name.h"
#include "common/rpc/flag_check.h"

namespace moestro {

namespace {

absl::Status ValidateStreamConfig(const StreamConfig& config) {
  if (config.device != "none" && config.device != "host" && !config.cuda_ordinal()) {
    return absl::InvalidArgumentError("--device " + config.device + ": use none, host or cuda:N (cuda: the first GPU)");
  }
  constexpr int64_t kMaxBytes = int64_t{1} << 50;
  MOE_RETURN_IF_ERROR(CheckFlagRange("--device-memory", config.memory_bytes, 0, kMaxBytes));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--device-dense-bytes", config.dense_bytes, 1, kMaxBytes));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--device-pin-bytes", config.pin_bytes, 0, kMaxBytes));
  if (config.ring_slots != 0) MOE_RETURN_IF_ERROR(CheckFlagRange("--ring-slots", config.ring_slots, 2, 1 << 20));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--min-pass-tokens", config.min_pass_tokens, 1, int64_t{1} << 32));
  return CheckFlagRange("--stream-from-tokens", config.from_tokens, 1, int64_t{1} << 32);
}

}  // namespace

std::optional<int> StreamConfig::cuda_ordinal() const { return device::CudaOrdinal(device); }

absl::Status ValidatePrefillConfig(const PrefillConfig& config) {
  MOE_RETURN_IF_ERROR(ValidateNodeOptions(config.node));
  MOE_RETURN_IF_ERROR(ValidateCpuOptions(config.cpu));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--chunk-tokens", config.chunk_tokens, 1, 512));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--queue-limit", config.queue_limit, 0, 1 << 20));
  MOE_RETURN_IF_ERROR(
      CheckFlagRange("--unabsorbed-from-tokens", config.mla_form.unabsorbed_from_tokens, 1, int64_t{1} << 32));
  const std::string& form = config.mla_form.name;
  if (form != "auto" && form != "absorbed" && form != "unabsorbed") {
    return absl::InvalidArgumentError("--mla-form " + form + ": use auto, absorbed or unabsorbed");
  }
  if (form == "absorbed" && config.stream.cuda_ordinal()) {
    return absl::InvalidArgumentError("--mla-form absorbed: promises the bits of the CPU, which --device " +
                                      config.stream.device + " does not have; use auto, or --device host");
  }
  return ValidateStreamConfig(config.stream);
}

}  // namespace moestro
