#include <map>
#include <string>

#include "common/base/status.h"
#include "common/weights/segment.h"
#include "common/weights/tensor_size.h"
#include "services/cli/model/inspect.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;

Json DirectoryJson(const weights::WeightSegment& segment) {
  struct Group {
    int64_t tensors = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Group> groups;
  for (const weights::TensorEntry& entry : segment.directory()) {
    const char* layout = entry.layout == weights::TensorLayout::kPacked ? "packed" : "row-major";
    Group& group = groups[std::string(DTypeName(entry.dtype)) + " " + layout];
    ++group.tensors;
    group.bytes += weights::StoredBytes(entry);
  }
  Json json = Json::object();
  for (const auto& [name, group] : groups) json[name] = {{"tensors", group.tensors}, {"bytes", group.bytes}};
  return json;
}

}  // namespace

Json ShapesJson(const weights::ModelSpec& spec) {
  return {{"hidden_size", spec.hidden_size},
          {"layers", spec.num_layers},
          {"dense_layers", spec.num_layers - spec.num_moe_layers()},
          {"heads", spec.num_heads},
          {"kv_heads", spec.num_kv_heads},
          {"q_lora_rank", spec.q_lora_rank},
          {"kv_lora_rank", spec.kv_lora_rank},
          {"qk_nope_head_dim", spec.qk_nope_head_dim},
          {"qk_rope_head_dim", spec.qk_rope_head_dim},
          {"v_head_dim", spec.v_head_dim},
          {"intermediate_size", spec.intermediate_size},
          {"moe_intermediate_size", spec.moe_intermediate_size},
          {"experts", spec.num_experts},
          {"experts_per_token", spec.experts_per_token},
          {"shared_experts", spec.num_shared_experts},
          {"vocab_rows", spec.vocab_size},
          {"tokens", spec.token_count},
          {"max_context_tokens", spec.max_position_embeddings}};
}

absl::StatusOr<Json> InspectSegment(const std::string& name, bool verify) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<const weights::WeightSegment> segment, weights::WeightSegment::Open(name));
  const weights::SegmentHeader& header = segment->header();
  Json json;
  json["segment"] = name;
  json["state"] = "ready";  // Open accepts no other state
  json["layout_version"] = header.layout_version;
  json["generation"] = header.generation;
  json["fingerprint"] = header.fingerprint;
  json["family"] = header.spec.family;
  json["segment_bytes"] = header.total_bytes;
  json["data_bytes"] = header.data_bytes;
  json["tensors"] = header.directory_count;
  json["directory"] = DirectoryJson(*segment);
  json["shapes"] = ShapesJson(header.spec);
  if (verify) {
    MOE_RETURN_IF_ERROR(segment->VerifyData());
    json["data_verified"] = true;
  }
  return json;
}

}  // namespace moestro::cli
