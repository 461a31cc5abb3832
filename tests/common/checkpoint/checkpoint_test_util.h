// Temporary directories, a tiny model, published configs and a matcher for errors.
#pragma once

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/inventory.h"
#include "common/weights/model_spec.h"
#include "tests/support/safetensors_builder.h"

namespace moestro::testing {

// Removed with its contents at the end of the scope.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "moestro_checkpoint_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() { std::filesystem::remove_all(path_); }

  // Returns the path of the new file.
  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << content;
    return path_ + "/" + name;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

// Matches a code and a message that contains every one of `parts`.
inline void ExpectError(const absl::Status& status, absl::StatusCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) {
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(part));
  }
}

inline absl::StatusOr<weights::ModelSpec> Parse(const nlohmann::json& config, const std::string& tokenizer = "") {
  return checkpoint::ParseModelSpec(config.dump(), tokenizer);
}

// The config of one of PublishedModels().
inline nlohmann::json Published(const std::string& model) {
  return nlohmann::json::parse(checkpoint::PublishedConfig(model));
}

// Two layers, the second a MoE layer; head dimensions allow only BF16 unless `head_dim` is 128.
inline nlohmann::json TinyConfig(int head_dim = 64) {
  return {{"model_type", "deepseek_v3"},
          {"hidden_size", 64},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"q_lora_rank", 32},
          {"kv_lora_rank", 64},
          {"qk_nope_head_dim", head_dim},
          {"qk_rope_head_dim", 16},
          {"v_head_dim", head_dim},
          {"intermediate_size", 96},
          {"moe_intermediate_size", 32},
          {"n_routed_experts", 8},
          {"num_experts_per_tok", 2},
          {"n_shared_experts", 1},
          {"first_k_dense_replace", 1},
          {"n_group", 4},
          {"topk_group", 2},
          {"routed_scaling_factor", 2.5},
          {"vocab_size", 40},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000}};
}

inline weights::ModelSpec TinySpec(int head_dim = 64) {
  return checkpoint::ParseModelSpec(TinyConfig(head_dim).dump(), "").value();
}

// Every tensor of the model, zeros. `fp8` stores the linears as F8_E4M3 with scales.
inline SafetensorsBuilder TinyTensors(const weights::ModelSpec& spec, bool fp8 = false) {
  SafetensorsBuilder builder;
  for (const model::ModelTensor& tensor : model::CheckpointTensors(spec)) {
    const bool quantized = fp8 && model::IsLinear(tensor.role);
    const bool bias = tensor.role == model::TensorRole::kRouterBias;
    builder.Add(tensor.name, quantized ? "F8_E4M3" : bias ? "F32" : "BF16", tensor.shape());
    if (!quantized) continue;
    builder.Add(tensor.name + "_scale_inv", "F32", {(tensor.rows + 127) / 128, (tensor.cols + 127) / 128});
  }
  return builder;
}

// weight_map for the given shard builders.
inline std::string Index(const std::map<std::string, SafetensorsBuilder>& shards) {
  nlohmann::json map = nlohmann::json::object();
  for (const auto& [file, builder] : shards) {
    for (const std::string& name : builder.Names()) map[name] = file;
  }
  return nlohmann::json({{"metadata", {{"total_size", 0}}}, {"weight_map", map}}).dump();
}

}  // namespace moestro::testing
