#include "services/prefill/config.h"

#include "common/base/status.h"
#include "common/rpc/flag_check.h"

namespace moestro {

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
  return absl::OkStatus();
}

}  // namespace moestro
