#include "tests/support/families.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/checkpoint/config.h"

namespace moestro::testing {
namespace {

using nlohmann::json;

// What the converters of llama.cpp write for these models.
std::vector<Family> Rows() {
  const std::string yarn =
      "rope.scaling.type=yarn rope.scaling.factor=40. rope.scaling.original_context_length=4096 "
      "rope.scaling.yarn_log_multiplier=0.1 ";
  const std::string v3 =
      "vocab_size=129280 block_count=61 context_length=163840 embedding_length=7168 feed_forward_length=18432 "
      "attention.head_count=128 attention.head_count_kv=1 rope.freq_base=10000. attention.key_length=576 "
      "attention.value_length=512 attention.key_length_mla=192 attention.value_length_mla=128 "
      "attention.layer_norm_rms_epsilon=1e-6 expert_used_count=8 expert_count=256 expert_feed_forward_length=2048 "
      "expert_shared_count=1 expert_weights_scale=2.5 expert_weights_norm=true expert_gating_func=2 "
      "leading_dense_block_count=3 attention.q_lora_rank=1536 attention.kv_lora_rank=512 rope.dimension_count=64 ";
  const std::string v2 =
      "vocab_size=102400 block_count=60 context_length=163840 embedding_length=5120 feed_forward_length=12288 "
      "attention.head_count=128 attention.head_count_kv=128 rope.freq_base=10000. attention.key_length=192 "
      "attention.value_length=128 attention.layer_norm_rms_epsilon=1e-6 expert_used_count=6 expert_count=160 "
      "expert_feed_forward_length=1536 expert_shared_count=2 expert_weights_scale=16. leading_dense_block_count=1 "
      "attention.q_lora_rank=1536 attention.kv_lora_rank=512 rope.dimension_count=64 ";
  const std::string lite =
      "vocab_size=102400 block_count=27 context_length=163840 embedding_length=2048 feed_forward_length=10944 "
      "attention.head_count=16 attention.head_count_kv=1 rope.freq_base=10000. attention.key_length=576 "
      "attention.value_length=512 attention.key_length_mla=192 attention.value_length_mla=128 "
      "attention.layer_norm_rms_epsilon=1e-6 expert_used_count=6 expert_count=64 expert_feed_forward_length=1408 "
      "expert_shared_count=2 expert_weights_scale=1. expert_weights_norm=false expert_gating_func=1 "
      "leading_dense_block_count=1 attention.kv_lora_rank=512 rope.dimension_count=64 rope.scaling.type=yarn "
      "rope.scaling.factor=40. rope.scaling.original_context_length=4096 rope.scaling.yarn_log_multiplier=0.0707 ";
  const std::string kimi =
      "vocab_size=163840 block_count=61 context_length=131072 embedding_length=7168 feed_forward_length=18432 "
      "attention.head_count=64 attention.head_count_kv=1 rope.freq_base=50000. attention.key_length=576 "
      "attention.value_length=512 attention.key_length_mla=192 attention.value_length_mla=128 "
      "attention.layer_norm_rms_epsilon=1e-6 expert_used_count=8 expert_count=384 expert_feed_forward_length=2048 "
      "expert_shared_count=1 expert_weights_scale=2.827 expert_weights_norm=true expert_gating_func=2 "
      "leading_dense_block_count=1 attention.q_lora_rank=1536 attention.kv_lora_rank=512 rope.dimension_count=64 "
      "expert_group_count=1 expert_group_used_count=1 rope.scaling.type=yarn rope.scaling.factor=32. "
      "rope.scaling.original_context_length=4096 rope.scaling.yarn_log_multiplier=0.1 tokenizer.ggml.pre=kimi-k2 ";
  const std::string air =
      "vocab_size=151552 block_count=47 nextn_predict_layers=1 context_length=131072 embedding_length=4096 "
      "feed_forward_length=10944 attention.head_count=96 attention.head_count_kv=8 rope.freq_base=1000000. "
      "attention.key_length=128 attention.value_length=128 attention.layer_norm_rms_epsilon=1e-5 "
      "rope.dimension_count=64 expert_used_count=8 expert_count=128 expert_feed_forward_length=1408 "
      "expert_shared_count=1 expert_weights_scale=1. expert_weights_norm=true leading_dense_block_count=1 ";
  const std::string oss =
      "block_count=24 context_length=131072 embedding_length=2880 feed_forward_length=2880 attention.head_count=64 "
      "attention.head_count_kv=8 rope.freq_base=150000. attention.layer_norm_rms_epsilon=1e-5 expert_count=32 "
      "expert_used_count=4 attention.key_length=64 attention.value_length=64 attention.sliding_window=128 "
      "expert_feed_forward_length=2880 rope.scaling.type=yarn rope.scaling.factor=32. "
      "rope.scaling.original_context_length=4096 test.rows=201088 ";
  const std::string llama =
      "vocab_size=128256 block_count=28 context_length=131072 embedding_length=3072 feed_forward_length=8192 "
      "attention.head_count=24 attention.head_count_kv=8 rope.freq_base=500000. attention.key_length=128 "
      "attention.value_length=128 attention.layer_norm_rms_epsilon=1e-5 rope.dimension_count=128 ";
  // torch, as converters compute them: of 64 frequencies, those between 29 and 35 are in part.
  std::vector<float> divisors(64, 1);
  for (size_t i = 0; i < divisors.size(); ++i) {
    const float wavelength = 2 * static_cast<float>(M_PI) / (1 / std::pow(500000.0F, static_cast<float>(2 * i) / 128));
    if (wavelength > 8192) divisors[i] = 32;
    if (wavelength < 2048 || wavelength > 8192) continue;
    const float smooth = (8192 / wavelength - 1) / 3;
    divisors[i] = 1 / ((1 - smooth) / 32 + smooth);
  }
  return {
      {"deepseek-v3", "deepseek2", Keys(v3 + yarn), {"output.weight", "blk.3.exp_probs_b.bias"}},
      {"deepseek-v3",
       "deepseek2",
       Keys(v3 + yarn + "expert_group_count=8 expert_group_used_count=4 rope.scaling.yarn_beta_fast=32."),
       {"output.weight", "blk.3.exp_probs_b.bias"}},
      {"deepseek-v2", "deepseek2", Keys(v2 + yarn), {"output.weight"}},
      {"deepseek-v2",
       "deepseek2",
       Keys(v2 + yarn + "expert_group_count=8 expert_group_used_count=3"),
       {"output.weight"}},
      {"deepseek-v2-lite", "deepseek2", Keys(lite), {"output.weight"}},
      {"kimi-k2", "deepseek2", Keys(kimi), {"output.weight"}},
      {"glm-4.5-air", "glm4moe", Keys(air), {"output.weight", "blk.0.attn_q.bias", "blk.46.nextn.eh_proj.weight"}},
      {"mixtral-8x7b",
       "llama",
       Keys("vocab_size=32000 block_count=32 context_length=32768 embedding_length=4096 feed_forward_length=14336 "
            "attention.head_count=32 attention.head_count_kv=8 attention.layer_norm_rms_epsilon=1e-5 "
            "rope.freq_base=1000000. rope.dimension_count=128 expert_count=8 expert_used_count=2"),
       {"output.weight"}},
      {"llama-3.2-3b", "llama", Keys(llama), {}, divisors},
      {"qwen2-57b",
       "qwen2moe",
       Keys("block_count=28 context_length=131072 embedding_length=3584 feed_forward_length=18944 "
            "attention.head_count=28 attention.head_count_kv=4 attention.layer_norm_rms_epsilon=1e-6 "
            "rope.freq_base=1000000. expert_count=64 expert_used_count=8 expert_feed_forward_length=2560 "
            "expert_shared_feed_forward_length=20480 test.rows=151936"),
       {"output.weight", "blk.0.attn_q.bias"}},
      {"qwen3-235b",
       "qwen3moe",
       Keys("block_count=94 context_length=40960 embedding_length=4096 feed_forward_length=12288 "
            "attention.head_count=64 attention.head_count_kv=4 attention.layer_norm_rms_epsilon=1e-6 "
            "rope.freq_base=1000000. expert_count=128 expert_used_count=8 expert_feed_forward_length=1536 "
            "attention.key_length=128 attention.value_length=128 test.rows=151936"),
       {"output.weight"}},
      {"gpt-oss-20b", "gpt-oss", Keys(oss), {"output.weight", "blk.0.attn_q.bias"}},
      {"gpt-oss-20b",
       "gpt-oss",
       Keys(oss + "rope.scaling.yarn_beta_fast=32. rope.scaling.yarn_beta_slow=1. attention.sliding_window_pattern=2"),
       {"output.weight", "blk.0.attn_q.bias"}},
      {"minimax-m2",
       "minimax-m2",
       Keys("block_count=62 context_length=196608 embedding_length=3072 feed_forward_length=1536 "
            "attention.head_count=48 attention.head_count_kv=8 rope.freq_base=5000000. "
            "attention.layer_norm_rms_epsilon=1e-6 expert_count=256 expert_used_count=8 expert_gating_func=2 "
            "attention.key_length=128 attention.value_length=128 expert_feed_forward_length=1536 "
            "rope.dimension_count=64 test.rows=200064"),
       {"output.weight"}},
      {"dbrx",
       "dbrx",
       Keys("block_count=40 context_length=32768 embedding_length=6144 feed_forward_length=10752 "
            "attention.head_count=48 attention.head_count_kv=8 rope.freq_base=500000. attention.clamp_kqv=8. "
            "attention.layer_norm_epsilon=1e-5 expert_count=16 expert_used_count=4 test.rows=100352"),
       {"output.weight"}},
  };
}

// A size in config.json, and what it is called in GGUF.
struct Size {
  const char* field;
  std::vector<const char*> keys;
  int64_t tiny;
};

// No width is a multiple of 128. A later row may give the key of an earlier one another value: experts of their own
// width.
const std::vector<Size>& Sizes() {
  static const std::vector<Size> sizes = {
      {"num_hidden_layers", {"block_count"}, 2},
      {"n_layers", {"block_count"}, 2},
      {"hidden_size", {"embedding_length"}, 192},
      {"d_model", {"embedding_length"}, 192},
      {"num_attention_heads", {"attention.head_count"}, 3},
      {"n_heads", {"attention.head_count"}, 3},
      {"num_key_value_heads", {"attention.head_count_kv"}, 1},
      {"kv_n_heads", {"attention.head_count_kv"}, 1},
      {"q_lora_rank", {"attention.q_lora_rank"}, 32},
      {"intermediate_size", {"feed_forward_length", "expert_feed_forward_length"}, 160},
      {"ffn_hidden_size", {"feed_forward_length"}, 80},
      {"moe_intermediate_size", {"expert_feed_forward_length"}, 80},
      {"shared_expert_intermediate_size", {"expert_shared_feed_forward_length"}, 72},
      {"num_experts", {"expert_count"}, 3},
      {"n_routed_experts", {"expert_count"}, 3},
      {"num_local_experts", {"expert_count"}, 3},
      {"moe_num_experts", {"expert_count"}, 3},
      {"num_experts_per_tok", {"expert_used_count"}, 2},
      {"moe_top_k", {"expert_used_count"}, 2},
      {"n_group", {"expert_group_count"}, 1},
      {"topk_group", {"expert_group_used_count"}, 1},
      {"first_k_dense_replace", {"leading_dense_block_count"}, 1},
      {"vocab_size", {"vocab_size", "test.rows"}, 40},
  };
  return sizes;
}

// Sets the field where the family has it; false if it does not.
bool SetField(const Size& size, json& config) {
  if (const auto field = config.find(size.field); field != config.end() && !field->is_null()) {
    *field = size.tiny;
    return true;
  }
  return std::ranges::any_of(config, [&](json& part) { return part.is_object() && SetField(size, part); });
}

}  // namespace

GgufKeys Keys(const std::string& text) {
  GgufKeys keys;
  for (const std::string& pair : std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipWhitespace()))) {
    keys[pair.substr(0, pair.find('='))] = pair.substr(pair.find('=') + 1);
  }
  return keys;
}

std::vector<Family> PublishedFamilies() {
  std::vector<Family> families = Rows();
  for (Family& family : families) family.config = json::parse(checkpoint::PublishedConfig(family.published));
  return families;
}

Family PublishedFamily(const std::string& model) {
  std::vector<Family> families = PublishedFamilies();
  return *std::ranges::find(families, model, &Family::published);
}

Family TinyFamily(const std::string& model) {
  Family family = PublishedFamily(model);
  GgufKeys& keys = family.keys;
  const bool every_head = keys["attention.head_count"] == keys["attention.head_count_kv"];
  for (const Size& size : Sizes()) {
    if (!SetField(size, family.config)) continue;
    for (const char* key : size.keys) {
      if (keys.contains(key)) keys[key] = absl::StrCat(size.tiny);
    }
  }
  if (every_head) keys["attention.head_count_kv"] = keys["attention.head_count"];
  if (model.starts_with("mixtral")) keys["rope.dimension_count"] = "64";  // heads have their part of the hidden state
  family.config.erase("layer_types");                                     // the family's rule gives them
  keys.erase("nextn_predict_layers");
  return family;
}

void AddMetadata(const Family& family, GgufBuilder* file) {
  file->Text("general.architecture", family.architecture);
  for (const auto& [name, value] : family.keys) {
    const bool whole = absl::StartsWith(name, "tokenizer.") || absl::StartsWith(name, "test.");
    const std::string key = whole ? name : absl::StrCat(family.architecture, ".", name);
    if (value.find_first_not_of("0123456789") == std::string::npos) {
      file->Integer(key, static_cast<uint32_t>(std::stoul(value)));
    } else if (value == "true" || value == "false") {
      file->Flag(key, value == "true");
    } else if (value.find_first_not_of("-+.e0123456789") == std::string::npos) {
      file->Float(key, std::stof(value));
    } else {
      file->Text(key, value);
    }
  }
  if (family.divisors.empty()) return;
  std::string data(family.divisors.size() * sizeof(float), '\0');
  std::memcpy(data.data(), family.divisors.data(), data.size());
  file->Tensor("rope_freqs.weight", kTypeF32, {family.divisors.size()}, data);
}

}  // namespace moestro::testing
