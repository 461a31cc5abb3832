#include <algorithm>
#include <iterator>

#include "common/base/check.h"
#include "common/checkpoint/config.h"

namespace moestro::checkpoint {
namespace {

struct Published {
  std::string_view name;
  std::string_view config;
};
constexpr Published kPublished[] = {
#include "published_configs.inc"
};

// Repositories whose config.json says the same, but for ids of tokens.
struct Repository {
  std::string_view repository;
  std::string_view name;  // of kPublished
};
constexpr Repository kRepositories[] = {
    {"deepseek-ai/DeepSeek-V3", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-R1", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-R1-Zero", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"},
    {"databricks/dbrx-base", "dbrx"},
    {"databricks/dbrx-instruct", "dbrx"},
    {"deepseek-ai/DeepSeek-V2", "deepseek-v2"},
    {"deepseek-ai/DeepSeek-V2-Chat", "deepseek-v2"},
    {"deepseek-ai/DeepSeek-V2-Lite", "deepseek-v2-lite"},
    {"deepseek-ai/DeepSeek-V2-Lite-Chat", "deepseek-v2-lite"},
    {"zai-org/GLM-4.5", "glm-4.5"},
    {"zai-org/GLM-4.5-Air", "glm-4.5-air"},
    {"zai-org/GLM-4.6", "glm-4.6"},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "r1-distill-llama-70b"},
    {"meta-llama/Llama-3.1-70B-Instruct", "r1-distill-llama-70b"},
    {"meta-llama/Llama-3.3-70B-Instruct", "r1-distill-llama-70b"},
    {"meta-llama/Llama-3.2-3B", "llama-3.2-3b"},
    {"meta-llama/Llama-3.2-3B-Instruct", "llama-3.2-3b"},
    {"MiniMaxAI/MiniMax-M2", "minimax-m2"},
    {"Qwen/Qwen2-57B-A14B", "qwen2-57b"},
    {"moonshotai/Kimi-K2-Base", "kimi-k2"},
    {"moonshotai/Kimi-K2-Instruct", "kimi-k2"},
    {"Qwen/Qwen3-235B-A22B", "qwen3-235b"},
    {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"},
    {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"},
};

}  // namespace

std::vector<std::string> PublishedModels() {
  std::vector<std::string> names;
  for (const Published& published : kPublished) names.emplace_back(published.name);
  return names;
}

std::string_view PublishedConfig(std::string_view name) {
  const auto* const published = std::ranges::find(kPublished, name, &Published::name);
  MOE_CHECK(published != std::end(kPublished));
  return published->config;
}

weights::ModelSpec PublishedModel(std::string_view name) { return ParseModelSpec(PublishedConfig(name), "").value(); }

std::optional<std::string_view> FindPublishedConfig(std::string_view model) {
  const auto* const repository = std::ranges::find(kRepositories, model, &Repository::repository);
  const std::string_view name = repository == std::end(kRepositories) ? model : repository->name;
  const auto* const published = std::ranges::find(kPublished, name, &Published::name);
  if (published == std::end(kPublished)) return std::nullopt;
  return published->config;
}

}  // namespace moestro::checkpoint
