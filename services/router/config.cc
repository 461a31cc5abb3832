#include "services/router/config.h"

#include "common/base/status.h"
#include "common/rpc/flag_check.h"

namespace moestro {

absl::Status ValidateRouterConfig(const RouterConfig& config) {
  MOE_RETURN_IF_ERROR(ValidateNodeOptions(config.node));
  if (config.grpc_address.find(':') == std::string::npos) {
    return absl::InvalidArgumentError("--grpc-address " + config.grpc_address +
                                      ": use HOST:PORT (port 0: any free one)");
  }
  MOE_RETURN_IF_ERROR(CheckFlagRange("--default-max-tokens", config.default_max_tokens, 1, 1 << 24));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--queue-limit", config.queue_limit, 1, 1 << 16));
  return CheckFlagRange("--recovery-seconds", config.recovery_seconds, 0, 3600);
}

}  // namespace moestro
