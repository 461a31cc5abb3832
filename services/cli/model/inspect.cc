// The only file of the command line that looks into another service: the weight store's libraries know checkpoints.
#include "services/cli/model/inspect.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/inventory.h"
#include "common/checkpoint/segment_plan.h"
#include "common/checkpoint/texts.h"
#include "common/platform/instance.h"
#include "common/platform/process_memory.h"
#include "common/platform/shared_memory.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;

const char* KindOf(const model::ModelTensor& tensor) {
  if (tensor.role == model::TensorRole::kNorm) return "norms";
  switch (tensor.part) {
    case model::TensorPart::kModel:
      return "embedding and head";
    case model::TensorPart::kAttention:
      return "attention";
    case model::TensorPart::kRouting:
      return "routers";
    case model::TensorPart::kDenseMlp:
      return "dense feed-forward";
    case model::TensorPart::kExpert:
      return "routed experts";
    case model::TensorPart::kSharedExpert:
      return "shared experts";
  }
  return "";
}

Json ParametersJson(const weights::ModelSpec& spec) {
  Json kinds = Json::object();
  for (const model::ModelTensor& tensor : model::CheckpointTensors(spec)) {
    const char* kind = KindOf(tensor);
    kinds[kind] = kinds.value(kind, int64_t{0}) + tensor.elements();
  }
  return kinds;
}

Json BytesJson(const std::vector<checkpoint::InventoryItem>& inventory) {
  Json kinds = Json::object();
  for (const checkpoint::InventoryItem& item : inventory) {
    const char* kind = KindOf(item.expected);
    kinds[kind] = kinds.value(kind, int64_t{0}) + item.bytes();
  }
  return kinds;
}

absl::Status AddSegmentNeed(const weights::ModelSpec& spec, bool fp8, Json& json) {
  MOE_ASSIGN_OR_RETURN(const int64_t need, checkpoint::SegmentBytesFor(spec, fp8));
  MOE_ASSIGN_OR_RETURN(const int64_t free, SharedMemory::FreeBytes());
  MOE_ASSIGN_OR_RETURN(const AvailableMemory available, ReadAvailableMemory());
  json["segment_bytes"] = need;
  if (spec.tied_head != 0) json["tied_head_bytes"] = checkpoint::TiedHeadBytes(spec);
  json["free_shared_memory_bytes"] = free;
  json["available_memory_bytes"] = available.bytes;
  json["fits"] = need <= std::min(free, available.bytes);
  return absl::OkStatus();
}

Json Head(const weights::ModelSpec& spec, bool fp8) {
  Json json;
  json["family"] = spec.family;
  json["weights"] = fp8 ? "FP8 with 128x128 block scales" : "BF16";
  json["parameters"] = model::ParameterCount(spec);
  json["shapes"] = ShapesJson(spec);
  json["parameters_by_kind"] = ParametersJson(spec);
  return json;
}

absl::StatusOr<Json> InspectConfig(const std::string& path) {
  MOE_ASSIGN_OR_RETURN(const std::string config, ReadFile(path));
  MOE_ASSIGN_OR_RETURN(const weights::ModelSpec spec, checkpoint::ParseModelSpec(config, /*tokenizer_json=*/""));
  // ParseModelSpec has accepted the config, and it accepts no quantisation other than FP8.
  const Json document = Json::parse(config, nullptr, /*allow_exceptions=*/false);
  const bool fp8 =
      document.is_object() && document.contains("quantization_config") && !document["quantization_config"].is_null();
  Json json = Head(spec, fp8);
  MOE_RETURN_IF_ERROR(AddSegmentNeed(spec, fp8, json));
  return json;
}

// The objects of the instance that hold this checkpoint.
absl::StatusOr<Json> LoadedAs(const std::string& instance, const std::string& fingerprint) {
  std::string prefix = WeightSegmentName(instance, fingerprint, 0);
  prefix.pop_back();  // the generation
  MOE_ASSIGN_OR_RETURN(const std::vector<SharedMemory::Listing> listings, SharedMemory::List(prefix));
  Json names = Json::array();
  for (const SharedMemory::Listing& listing : listings) names.push_back(listing.name);
  return names;
}

absl::StatusOr<Json> InspectDirectory(const std::string& path, const std::string& instance) {
  MOE_ASSIGN_OR_RETURN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::Open(path));
  const checkpoint::CheckpointDocuments& documents = checkpoint.documents();
  MOE_ASSIGN_OR_RETURN(const weights::ModelSpec spec,
                       checkpoint::ParseModelSpec(documents.config_json, documents.tokenizer_json));
  std::vector<std::string> warnings = checkpoint.warnings();
  MOE_ASSIGN_OR_RETURN(const checkpoint::GenerationDefaults defaults,
                       checkpoint::ParseGenerationDefaults(documents, spec.vocab_size));
  MOE_RETURN_IF_ERROR(checkpoint::CheckTexts(documents, defaults, spec, &warnings));
  std::vector<checkpoint::SkippedTensors> skipped;
  MOE_ASSIGN_OR_RETURN(const std::vector<checkpoint::InventoryItem> inventory,
                       checkpoint::CheckInventory(checkpoint, spec, &warnings, &skipped));
  bool fp8 = false;
  for (const checkpoint::InventoryItem& item : inventory) fp8 |= item.scale.has_value();
  Json json = Head(spec, fp8);
  json["files"] = checkpoint.shards().size();
  json["checkpoint_bytes"] = checkpoint.total_bytes();
  json["bytes_by_kind"] = BytesJson(inventory);
  for (const checkpoint::SkippedTensors& group : skipped) {
    json["left_out"][group.group] = {{"tensors", group.tensors}, {"bytes", group.bytes}};
  }
  json["fingerprint"] = checkpoint.fingerprint();
  MOE_RETURN_IF_ERROR(AddSegmentNeed(spec, fp8, json));
  MOE_ASSIGN_OR_RETURN(json["loaded_as"], LoadedAs(instance, checkpoint.fingerprint()));
  json["warnings"] = warnings;
  return json;
}

}  // namespace

absl::StatusOr<weights::ModelSpec> ReadModelSpec(const std::string& path) {
  std::error_code error;
  const bool directory = std::filesystem::is_directory(path, error);
  MOE_ASSIGN_OR_RETURN(const std::string config, ReadFile(directory ? path + "/config.json" : path));
  return checkpoint::ParseModelSpec(config, /*tokenizer_json=*/"");
}

absl::StatusOr<Json> InspectCheckpoint(const std::string& path, const std::string& instance) {
  MOE_RETURN_IF_ERROR(Annotate(ValidateInstanceName(instance), "--instance"));
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? InspectDirectory(path, instance) : InspectConfig(path);
}

}  // namespace moestro::cli
