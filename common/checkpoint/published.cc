#include <algorithm>
#include <iterator>

#include "common/base/check.h"
#include "common/checkpoint/config.h"
#include "common/text/json/json.h"

namespace moestro::checkpoint {
namespace {

struct Published {
  std::string_view name;
  std::string_view config;
};
constexpr Published kPublished[] = {
#include "published_configs.inc"
};

// The config.json of `same_as`, a name of kPublished or a repository, but for ids of tokens and for what `patch`
// changes, a JSON merge patch (RFC 7396).
struct Repository {
  std::string_view repository;
  std::string_view same_as;
  std::string_view patch = "{}";
};
constexpr std::string_view kScalesArePowersOf2 = R"({"quantization_config": {"scale_fmt": "ue8m0"}})";
constexpr std::string_view kQwen3Of2507 = R"({"max_position_embeddings": 262144, "rope_theta": 5000000})";
constexpr std::string_view kSmallQwen3Of2507 = R"({"max_position_embeddings": 262144, "rope_theta": 10000000})";
constexpr std::string_view kKimi0905 = R"({"max_position_embeddings": 262144, "rope_scaling": {"factor": 64.0}})";
// Routed experts in INT4, a scale for 32 numbers.
constexpr std::string_view kKimiInInt4 =
    R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {)"
    R"("group_0": {"targets": ["Linear"], "weights": {"dynamic": false, "group_size": 32, "num_bits": 4, )"
    R"("strategy": "group", "symmetric": true, "type": "int"}}}, "ignore": ["lm_head", "re:.*self_attn.*", )"
    R"("re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"], )"
    R"("activation_scheme": null, "fmt": null, "weight_block_size": null}})";
// The text model in a wrapper for images, as if it stood alone.
constexpr std::string_view kKimi25 = R"({"rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0}})";
constexpr Repository kRepositories[] = {
    {"deepseek-ai/DeepSeek-V3", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-V3.1", "deepseek-v3", kScalesArePowersOf2},
    {"deepseek-ai/DeepSeek-V3.1-Base", "deepseek-v3", kScalesArePowersOf2},
    {"deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek-v3", kScalesArePowersOf2},
    {"deepseek-ai/DeepSeek-R1", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-R1-Zero", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"},
    {"databricks/dbrx-base", "dbrx"},
    {"databricks/dbrx-instruct", "dbrx"},
    {"deepseek-ai/DeepSeek-V2", "deepseek-v2"},
    {"deepseek-ai/DeepSeek-V2-Chat", "deepseek-v2"},
    {"deepseek-ai/DeepSeek-V2-Chat-0628", "deepseek-v2"},
    {"deepseek-ai/DeepSeek-V2.5", "deepseek-v2"},
    {"deepseek-ai/DeepSeek-V2.5-1210", "deepseek-v2"},
    {"deepseek-ai/DeepSeek-V2-Lite", "deepseek-v2-lite"},
    {"deepseek-ai/DeepSeek-V2-Lite-Chat", "deepseek-v2-lite"},
    {"zai-org/GLM-4.5", "glm-4.5"},
    {"zai-org/GLM-4.5-Base", "glm-4.5"},
    {"zai-org/GLM-4.5-Air", "glm-4.5-air"},
    {"zai-org/GLM-4.5-Air-Base", "glm-4.5-air"},
    {"zai-org/GLM-4.6", "glm-4.6"},
    {"openai/gpt-oss-20b", "gpt-oss-20b"},
    {"openai/gpt-oss-120b", "gpt-oss-120b"},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "r1-distill-llama-70b"},
    {"meta-llama/Llama-3.1-70B-Instruct", "r1-distill-llama-70b"},
    {"meta-llama/Llama-3.3-70B-Instruct", "r1-distill-llama-70b"},
    {"meta-llama/Llama-3.2-3B", "llama-3.2-3b"},
    {"meta-llama/Llama-3.2-3B-Instruct", "llama-3.2-3b"},
    {"MiniMaxAI/MiniMax-M2", "minimax-m2"},
    {"Qwen/Qwen2-57B-A14B", "qwen2-57b"},
    {"Qwen/Qwen2-57B-A14B-Instruct", "qwen2-57b", R"({"max_position_embeddings": 32768, "sliding_window": 32768})"},
    {"moonshotai/Kimi-K2-Base", "kimi-k2"},
    {"moonshotai/Kimi-K2-Instruct", "kimi-k2"},
    {"moonshotai/Kimi-K2-Instruct-0905", "kimi-k2", kKimi0905},
    {"moonshotai/Kimi-K2-Thinking", "moonshotai/Kimi-K2-Instruct-0905", kKimiInInt4},
    {"moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2-Thinking", kKimi25},
    {"Qwen/Qwen3-235B-A22B", "qwen3-235b"},
    {"Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b", kQwen3Of2507},
    {"Qwen/Qwen3-235B-A22B-Thinking-2507", "qwen3-235b", kQwen3Of2507},
    {"Qwen/Qwen3-30B-A3B", "qwen3-30b"},
    {"Qwen/Qwen3-30B-A3B-Base", "qwen3-30b", R"({"max_position_embeddings": 32768})"},
    {"Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b", kSmallQwen3Of2507},
    {"Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-30b", kSmallQwen3Of2507},
    {"Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b", kSmallQwen3Of2507},
    {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"},
    {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"},
    {"mistralai/Mixtral-8x22B-v0.1", "mixtral-8x22b"},
    {"mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral-8x22b", R"({"vocab_size": 32768})"},
};

std::string Patched(const std::string& config, std::string_view patch) {
  nlohmann::json patched = text::ParseJsonObject(config, "config.json").value();
  patched.merge_patch(text::ParseJsonObject(patch, "patch").value());
  return patched.dump();
}

}  // namespace

std::vector<std::string> PublishedModels() {
  std::vector<std::string> names;
  for (const Published& published : kPublished) names.emplace_back(published.name);
  return names;
}

std::vector<std::string> PublishedRepositories() {
  std::vector<std::string> names;
  for (const Repository& repository : kRepositories) names.emplace_back(repository.repository);
  return names;
}

std::string_view PublishedConfig(std::string_view name) {
  const auto* const published = std::ranges::find(kPublished, name, &Published::name);
  MOE_CHECK(published != std::end(kPublished));
  return published->config;
}

weights::ModelSpec PublishedModel(std::string_view name) { return ParseModelSpec(PublishedConfig(name), "").value(); }

std::optional<std::string> FindPublishedConfig(std::string_view model) {
  const auto* const repository = std::ranges::find(kRepositories, model, &Repository::repository);
  if (repository != std::end(kRepositories)) {
    return Patched(FindPublishedConfig(repository->same_as).value(), repository->patch);
  }
  const auto* const published = std::ranges::find(kPublished, model, &Published::name);
  if (published == std::end(kPublished)) return std::nullopt;
  return std::string(published->config);
}

}  // namespace moestro::checkpoint
