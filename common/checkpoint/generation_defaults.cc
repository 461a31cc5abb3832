#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/tokenizer_ids.h"
#include "common/text/chat_template.h"
#include "common/text/json/json.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {

using text::JsonFields;

namespace {

using nlohmann::json;

constexpr const char* kSamplingKeys[] = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"};

// Returns an empty object for an absent document.
absl::StatusOr<json> ParseOptional(std::string_view text, const std::string& label) {
  if (text.empty()) return json::object();
  return text::ParseJsonObject(text, label);
}

// A field that is absent is neutral, as in vLLM. transformers would sample from the 50 likeliest tokens, and greedily
// where do_sample is absent, which no publisher of a chat model means.
void ReadSampling(JsonFields& generation, const std::string& source, GenerationDefaults* defaults) {
  defaults->temperature = generation.NumberOr("temperature", 1, 0, 100);
  defaults->top_p = generation.NumberOr("top_p", 1, 1e-6, 1);
  // Some publishers write -1 for "no limit".
  defaults->top_k = static_cast<int>(std::max<int64_t>(0, generation.IntOr("top_k", 0, -1, INT32_MAX)));
  defaults->min_p = generation.NumberOr("min_p", 0, 0, 1);
  // The range of the same field of requests, which keeps every logit finite.
  defaults->repetition_penalty = generation.NumberOr("repetition_penalty", 1, 0.01, 10);
  const bool is_greedy = !generation.BoolOr("do_sample", true);
  if (is_greedy) defaults->temperature = 0;
  const bool is_published =
      is_greedy || std::ranges::any_of(kSamplingKeys, [&](const char* key) { return generation.Has(key); });
  if (is_published) defaults->sampling_source = source;
  // max_length, which counts the prompt, is not read: older files have the library's default of 20 there.
  defaults->max_new_tokens = generation.IntOr("max_new_tokens", 0, 0, INT32_MAX);
}

// Whether an answer begins inside of <think>.
bool TemplateThinks(const GenerationDefaults& defaults) {
  const auto chat_template = text::ChatTemplate::Parse(defaults.chat_template);
  if (!chat_template.ok()) return false;
  const text::Chat chat{.messages = {{.role = "user", .content = "a"}}};
  const auto prompt =
      (*chat_template)->Render(chat, {.bos_token = defaults.bos_token, .eos_token = defaults.eos_token});
  return prompt.ok() && text::PromptOpensReasoning(*prompt);
}

// Models that think repeat themselves without end where they are greedy, and lose their thread where they are not held:
// they get what DeepSeek-R1 and Qwen3 publish.
void SampleWithoutAdvice(GenerationDefaults* defaults) {
  defaults->sampling_source = "nothing is published";
  if (!TemplateThinks(*defaults)) return;
  defaults->sampling_source = "the template thinks";
  defaults->temperature = 0.6;
  defaults->top_p = 0.95;
}

// eos_token_id: one id or a list of ids.
void AddStopIds(JsonFields& fields, int64_t vocab_size, std::vector<int32_t>* ids) {
  constexpr char kKey[] = "eos_token_id";
  if (!fields.Has(kKey)) return;
  const json& value = fields.object()[kKey];
  if (!value.is_array()) {
    ids->push_back(static_cast<int32_t>(fields.Int(kKey, 0, vocab_size - 1)));
    return;
  }
  for (const json& element : value) {
    const auto* id = element.get_ptr<const json::number_unsigned_t*>();
    if (id == nullptr || *id >= static_cast<uint64_t>(vocab_size)) {
      return fields.Fail(kKey, absl::StrCat(text::Describe(element), " is not an id below vocab_size = ", vocab_size));
    }
    ids->push_back(static_cast<int32_t>(*id));
  }
}

// "bos_token": a string, or an object with the string in "content".
std::string ReadTokenText(JsonFields& fields, const char* key) {
  if (!fields.Has(key) || !fields.object()[key].is_object()) return fields.StringOr(key, "");
  return fields.Sub(key).StringOr("content", "");
}

// "add_bos_token"; if absent, the default of the class named by "tokenizer_class". Classes other than Llama's leave BOS
// to the post-processor of tokenizer.json, or have none.
bool ReadAddBos(JsonFields& fields) {
  const std::string name = fields.StringOr("tokenizer_class", "");
  return fields.BoolOr("add_bos_token", name == "LlamaTokenizer" || name == "LlamaTokenizerFast");
}

// "chat_template": a string, or a list of {"name", "template"} of which "default" and "tool_use" are used.
void ReadChatTemplates(JsonFields& fields, GenerationDefaults* defaults) {
  constexpr char kKey[] = "chat_template";
  if (!fields.Has(kKey) || !fields.object()[kKey].is_array()) {
    defaults->chat_template = fields.StringOr(kKey, "");
    return;
  }
  for (const json& entry : fields.object()[kKey]) {
    const bool complete = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                          entry.contains("template") && entry["template"].is_string();
    if (!complete) return fields.Fail(kKey, "an entry of the list lacks name or template");
    const std::string& name = entry["name"].get_ref<const std::string&>();
    if (name == "default") defaults->chat_template = entry["template"].get<std::string>();
    if (name == "tool_use") defaults->tool_use_template = entry["template"].get<std::string>();
  }
}

// Resolves the ids of bos_token and eos_token by their text, if the files contain them.
void ResolveTokens(JsonFields& tokenizer_config, const TokenIds& ids, bool has_tokenizer,
                   GenerationDefaults* defaults) {
  if (const auto bos = ids.find(defaults->bos_token); defaults->bos < 0 && bos != ids.end())
    defaults->bos = bos->second;
  if (defaults->eos_token.empty()) return;
  if (const auto eos = ids.find(defaults->eos_token); eos != ids.end()) {
    defaults->stop_ids.push_back(eos->second);
  } else if (has_tokenizer) {
    tokenizer_config.Fail(
        "eos_token", absl::StrCat(text::Quoted(defaults->eos_token), " is not among added_tokens of tokenizer.json"));
  }
}

}  // namespace

absl::StatusOr<GenerationDefaults> ParseGenerationDefaults(const CheckpointDocuments& documents, int64_t vocab_size) {
  MOE_ASSIGN_OR_RETURN(const json config_json, text::ParseJsonObject(documents.config_json, "config.json"));
  MOE_ASSIGN_OR_RETURN(const json generation_json,
                       ParseOptional(documents.generation_config_json, documents.generation_config_source));
  MOE_ASSIGN_OR_RETURN(const json tokenizer_json, ParseOptional(documents.tokenizer_json, "tokenizer.json"));
  MOE_ASSIGN_OR_RETURN(const json settings_json,
                       ParseOptional(documents.tokenizer_config_json, "tokenizer_config.json"));
  absl::Status status;
  JsonFields config(config_json, "config.json", &status);
  JsonFields generation(generation_json, documents.generation_config_source, &status);
  JsonFields settings(settings_json, "tokenizer_config.json", &status);

  GenerationDefaults defaults;
  ReadSampling(generation, documents.generation_config_source, &defaults);
  JsonFields wrapped = config.Sub("text_config");  // of a wrapper around a text model
  JsonFields& config_holder = config.Has("bos_token_id") ? config : wrapped;
  JsonFields& bos_holder = generation.Has("bos_token_id") ? generation : config_holder;
  defaults.bos = static_cast<int32_t>(bos_holder.IntOr("bos_token_id", -1, 0, vocab_size - 1));
  for (JsonFields* holder : {&generation, &config, &wrapped}) AddStopIds(*holder, vocab_size, &defaults.stop_ids);
  defaults.bos_token = ReadTokenText(settings, "bos_token");
  defaults.eos_token = ReadTokenText(settings, "eos_token");
  defaults.add_bos_token = ReadAddBos(settings) && !defaults.bos_token.empty();
  defaults.chat_template = documents.chat_template_jinja;
  defaults.tool_use_template = documents.tool_use_jinja;
  const bool has_files = !defaults.chat_template.empty() || !defaults.tool_use_template.empty();
  if (!has_files) ReadChatTemplates(settings, &defaults);
  MOE_ASSIGN_OR_RETURN(const TokenIds ids, AddedTokens(tokenizer_json, settings_json, vocab_size));
  if (defaults.sampling_source.empty()) SampleWithoutAdvice(&defaults);
  ResolveTokens(settings, ids, !documents.tokenizer_json.empty(), &defaults);
  MOE_RETURN_IF_ERROR(status);

  std::sort(defaults.stop_ids.begin(), defaults.stop_ids.end());
  defaults.stop_ids.erase(std::unique(defaults.stop_ids.begin(), defaults.stop_ids.end()), defaults.stop_ids.end());
  return defaults;
}

}  // namespace moestro::checkpoint
