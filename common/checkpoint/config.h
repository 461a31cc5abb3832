// config.json and its neighbours, resolved into what the engine and the front door need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/weights/model_spec.h"

namespace moestro::checkpoint {

// The small files of a checkpoint, as they are on disk. Empty where the checkpoint has no such file; only config.json
// is always there.
struct CheckpointDocuments {
  std::string config_json = {};
  std::string generation_config_json = {};
  std::string generation_config_source = "generation_config.json";  // as messages name it; "GGUF": made of its metadata
  std::string tokenizer_json = {};
  std::string tokenizer_config_json = {};
  std::string chat_template_jinja = {};
  std::string tool_use_jinja = {};  // additional_chat_templates/tool_use.jinja
  std::string tiktoken_ranks = {};  // tiktoken.model or *.tiktoken, read only where there is no tokenizer.json
};

// The families are those of kFamilies in config.cc. Both spellings of a config are read (rope_theta + rope_scaling, or
// rope_parameters; torch_dtype or dtype). `tokenizer_json` may be empty: then every row of the vocabulary counts as a
// token. The result satisfies every relation that the engine relies on, and no size derived from it overflows int64.
// UNIMPLEMENTED: another family, or a value that this engine does not implement (quantisation, rope type, router).
// INVALID_ARGUMENT: malformed, missing, out of range or contradictory. Messages name file and field.
absl::StatusOr<weights::ModelSpec> ParseModelSpec(std::string_view config_json, std::string_view tokenizer_json);

// How many layers of multi-token prediction the checkpoint has behind its decoder layers: num_nextn_predict_layers, 0
// where the field is absent. INVALID_ARGUMENT: not JSON, or the field is not a number from 0 to the most layers.
absl::StatusOr<int64_t> PredictionLayers(std::string_view config_json);

// Models as they were published: the config.json files in published/, which are compiled in.
std::vector<std::string> PublishedModels();
// REQUIRES of both: one of PublishedModels().
std::string_view PublishedConfig(std::string_view name);
weights::ModelSpec PublishedModel(std::string_view name);
// Repositories of models whose config.json is known ("deepseek-ai/DeepSeek-V3").
std::vector<std::string> PublishedRepositories();
// `model`: one of PublishedModels() or of PublishedRepositories(). ParseModelSpec accepts the config.
std::optional<std::string> FindPublishedConfig(std::string_view model);

// What a request gets that does not say otherwise, as the publisher of the model set it.
struct GenerationDefaults {
  double temperature = 1;  // 0 = greedy, whatever the next three say
  double top_p = 1;
  int top_k = 0;                  // 0 = no limit
  double min_p = 0;               // 0 = off
  double repetition_penalty = 1;  // 1 = off; of greedy answers, too
  std::string sampling_source;  // of the five above, for people: "generation_config.json", "GGUF", or why there is none
  int64_t max_new_tokens = 0;   // of an answer; 0 = as many as the context has room for
  int32_t bos = -1;             // -1 = none
  std::vector<int32_t> stop_ids;  // sorted; end-of-sequence ids of all three files together
  std::string bos_token;          // text, empty if none
  std::string eos_token;          // text, empty if none
  bool add_bos_token = false;     // plain text begins with bos_token; then there is one
  // Jinja sources, empty if none. Template files win over tokenizer_config.json.
  std::string chat_template;
  std::string tool_use_template;  // for chats with tools
};

// `vocab_size` bounds every id. INVALID_ARGUMENT with file and field for malformed values, and for an eos_token that
// tokenizer.json and tokenizer_config.json do not know.
absl::StatusOr<GenerationDefaults> ParseGenerationDefaults(const CheckpointDocuments& documents, int64_t vocab_size);

}  // namespace moestro::checkpoint
