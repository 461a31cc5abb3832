#include "services/weight_store/config.h"

#include "common/base/status.h"
#include "common/checkpoint/model_location.h"
#include "common/process/flag_check.h"
#include "common/text/json/quoted.h"
#include "common/text/utf8.h"

namespace moestro::store {
namespace {

// The name, and errors that name files, reach the other roles in messages that must be UTF-8.
absl::Status CheckUtf8(const std::string& flag, const std::string& text, const std::string& remedy) {
  if (!text::FindInvalidUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(flag + " " + text::Printable(text) + ": not UTF-8; " + remedy);
}

}  // namespace

absl::Status ValidateStoreConfig(StoreConfig& config) {
  MOE_RETURN_IF_ERROR(ValidateNodeOptions(config.node));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--threads", config.threads, 0, 1024));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--numa-domains", config.numa_domains, 0, 1024));
  const absl::StatusOr<checkpoint::ModelLocation> model = checkpoint::LocateModel(config.model_dir);
  if (!model.ok()) return absl::Status(model.status().code(), "--model " + std::string(model.status().message()));
  config.model_dir = model->path;
  MOE_RETURN_IF_ERROR(CheckUtf8("--model", config.model_dir, "rename the directory"));
  if (config.model_name.empty()) {
    config.model_name = model->name;
    config.node.settings->Derive("model-name", model->name, "from --model");
  }
  return CheckUtf8("--model-name", config.model_name, "choose another name");
}

}  // namespace moestro::store
