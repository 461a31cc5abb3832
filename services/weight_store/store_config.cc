#include "services/weight_store/store_config.h"

#include <filesystem>
#include <system_error>

#include "common/base/status.h"
#include "common/rpc/flag_check.h"

namespace moestro {

absl::Status ValidateStoreConfig(StoreConfig& config) {
  MOE_RETURN_IF_ERROR(ValidateNodeOptions(config.node));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--threads", config.threads, 0, 1024));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--numa-domains", config.numa_domains, 0, 1024));
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::canonical(config.model_dir, error);
  if (error || !std::filesystem::is_directory(directory, error)) {
    return absl::InvalidArgumentError("--model " + config.model_dir +
                                      ": not a directory; give the one that holds config.json");
  }
  config.model_dir = directory.string();
  if (config.model_name.empty()) config.model_name = directory.filename().string();
  return absl::OkStatus();
}

}  // namespace moestro
