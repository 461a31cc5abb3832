#include "services/cli/make_model/tokenizer_files.h"

#include <string_view>

#include "common/base/status.h"
#include "common/text/bpe_trainer.h"
#include "common/text/deepseek_patterns.h"
#include "nlohmann/json.hpp"
#include "services/cli/make_model/special_tokens.h"
#include "services/cli/make_model/training_corpus.h"

namespace moestro {
namespace {

// Keys keep the order of published files.
using Json = nlohmann::ordered_json;

// About as many as the corpus yields. With 256 byte tokens and 5 control tokens: 1461 ids.
constexpr int kMerges = 1200;

// DeepSeek-V3's chat layout: the system text right after the BOS token, no line breaks between turns, an EOS token
// after each answer. Several system messages are parted by a blank line.
constexpr char kChatTemplate[] = R"jinja({%- set ns = namespace(system='', seen=false) -%}
{%- for message in messages -%}
  {%- if message['role'] == 'system' -%}
    {%- if ns.seen -%}{%- set ns.system = ns.system + '\n\n' -%}{%- endif -%}
    {%- set ns.system = ns.system + message['content'] -%}
    {%- set ns.seen = true -%}
  {%- endif -%}
{%- endfor -%}
{{- bos_token + ns.system -}}
{%- for message in messages -%}
  {%- if message['role'] == 'user' -%}
    {{- '<｜User｜>' + message['content'] -}}
  {%- elif message['role'] == 'assistant' -%}
    {{- '<｜Assistant｜>' + message['content'] + eos_token -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt is defined and add_generation_prompt -%}
  {{- '<｜Assistant｜>' -}}
{%- endif -%})jinja";

Json AddedToken(int64_t id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

Json SplitStep(std::string_view pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

Json PreTokenizer() {
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  Json steps = Json::array();
  for (const std::string_view pattern : kDeepSeekV3Patterns) steps.push_back(SplitStep(pattern));
  steps.push_back(bytes);
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// Puts the BOS token before each encoded text.
Json PostProcessor() {
  const auto special = [](int type_id) { return Json{{"SpecialToken", {{"id", kBosToken}, {"type_id", type_id}}}}; };
  const auto text = [](const char* id, int type_id) { return Json{{"Sequence", {{"id", id}, {"type_id", type_id}}}}; };
  Json tokens;
  tokens[kBosToken] = {{"id", kBosToken}, {"ids", {kBosId}}, {"tokens", {kBosToken}}};
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({special(0), text("A", 0)})},
          {"pair", Json::array({special(0), text("A", 0), special(1), text("B", 1)})},
          {"special_tokens", std::move(tokens)}};
}

Json BpeModel(const TrainedBpe& bpe) {
  Json vocab;
  vocab[kBosToken] = kBosId;
  vocab[kEosToken] = kEosId;
  vocab[kPadToken] = kPadId;
  for (size_t i = 0; i < bpe.tokens.size(); ++i) vocab[bpe.tokens[i]] = kFirstOrdinaryId + static_cast<int64_t>(i);
  Json merges = Json::array();
  for (const auto& [left, right] : bpe.merges) merges.push_back(left + " " + right);
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

Json Tokenizer(const TrainedBpe& bpe, int64_t user_id, int64_t assistant_id) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           Json::array({AddedToken(kBosId, kBosToken), AddedToken(kEosId, kEosToken), AddedToken(kPadId, kPadToken),
                        AddedToken(user_id, kUserToken), AddedToken(assistant_id, kAssistantToken)})},
          {"normalizer", nullptr},
          {"pre_tokenizer", PreTokenizer()},
          {"post_processor", PostProcessor()},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
          {"model", BpeModel(bpe)}};
}

Json TokenizerConfig() {
  const auto token = [](const char* content) {
    return Json{{"__type", "AddedToken"}, {"content", content}, {"lstrip", false},
                {"normalized", true},     {"rstrip", false},    {"single_word", false}};
  };
  return {{"add_bos_token", true},
          {"add_eos_token", false},
          {"bos_token", token(kBosToken)},
          {"clean_up_tokenization_spaces", false},
          {"eos_token", token(kEosToken)},
          {"legacy", true},
          {"model_max_length", 131072},
          {"pad_token", token(kEosToken)},
          {"sp_model_kwargs", Json::object()},
          {"unk_token", nullptr},
          {"tokenizer_class", "LlamaTokenizerFast"},
          {"chat_template", kChatTemplate}};
}

}  // namespace

absl::StatusOr<TokenizerFiles> BuildTokenizerFiles() {
  MOE_ASSIGN_OR_RETURN(const TrainedBpe bpe, TrainBpe(TrainingCorpus(), kMerges));
  const int64_t user_id = kFirstOrdinaryId + static_cast<int64_t>(bpe.tokens.size());
  const int64_t assistant_id = user_id + 1;
  TokenizerFiles files;
  files.tokenizer_json = Tokenizer(bpe, user_id, assistant_id).dump(2) + "\n";
  files.tokenizer_config_json = TokenizerConfig().dump(2) + "\n";
  files.token_count = assistant_id + 1;
  return files;
}

}  // namespace moestro
