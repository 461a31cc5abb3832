#include "common/checkpoint/gguf/gguf_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/checkpoint/gguf/gguf_fields.h"
#include "common/checkpoint/gguf/gguf_tokenizer.h"
#include "common/checkpoint/gguf/gguf_vocabulary.h"
#include "common/text/concat.h"
#include "common/text/json/quoted.h"
#include "common/text/utf8.h"

namespace moestro::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kTokenizerJson = "tokenizer.huggingface.json";
constexpr std::string_view kBos = "tokenizer.ggml.bos_token_id";
constexpr std::string_view kEos = "tokenizer.ggml.eos_token_id";
constexpr std::string_view kEot = "tokenizer.ggml.eot_token_id";
constexpr std::string_view kEom = "tokenizer.ggml.eom_token_id";
constexpr std::string_view kUnknown = "tokenizer.ggml.unknown_token_id";
constexpr std::string_view kPadding = "tokenizer.ggml.padding_token_id";
constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token";
constexpr std::string_view kAddEos = "tokenizer.ggml.add_eos_token";
constexpr std::string_view kChatTemplate = "tokenizer.chat_template";
constexpr std::string_view kChatTemplates = "tokenizer.chat_templates";

// Published lists of stop tokens have up to three; the file names eos, and not always the others. These control tokens
// end an answer in every family that has them.
constexpr std::string_view kEndsOfAnswers[] = {
    "</s>",       "<|call|>",   "<|end_of_text|>",       "<|endoftext|>", "<|eom_id|>", "<|eot_id|>",
    "<|im_end|>", "<|return|>", "<｜end▁of▁sentence｜>", "[EOS]",         "[EOT]",      "[e~[",
};

absl::StatusOr<std::string> Utf8Text(const GgufMetadata& metadata, std::string_view key) {
  MOE_ASSIGN_OR_RETURN(const std::string* const text, metadata.Text(key));
  if (const auto offset = text::FindInvalidUtf8(*text)) {
    return metadata.Wrong(key, text::Concat("not UTF-8 at byte ", *offset));
  }
  return *text;
}

struct NamedToken {
  int32_t id;
  std::string text;
};

// The token whose id a key has.
absl::StatusOr<std::optional<NamedToken>> FindNamedToken(const GgufMetadata& metadata, std::string_view key) {
  if (!metadata.Has(key)) return std::nullopt;
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string>* const texts, metadata.Texts(kGgufTokens));
  MOE_ASSIGN_OR_RETURN(const int64_t id, metadata.Integer(key, 0, static_cast<int64_t>(texts->size()) - 1));
  const std::string& text = (*texts)[id];
  if (text.empty() || text::FindInvalidUtf8(text)) {
    return metadata.Wrong(key, text::Concat("token ", id, ", ", text::Quoted(text), ", is empty or not UTF-8"));
  }
  return NamedToken{static_cast<int32_t>(id), text};
}

// A template, or the list of {"name", "template"} of a file that has several.
absl::StatusOr<json> ChatTemplates(const GgufMetadata& metadata) {
  json single = nullptr;
  if (metadata.Has(kChatTemplate)) {
    MOE_ASSIGN_OR_RETURN(single, Utf8Text(metadata, kChatTemplate));
  }
  if (!metadata.Has(kChatTemplates)) return single;
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string>* const names, metadata.Texts(kChatTemplates));
  json list = json::array();
  if (!single.is_null()) list.push_back({{"name", "default"}, {"template", std::move(single)}});
  for (const std::string& name : *names) {
    if (text::FindInvalidUtf8(name)) {
      return metadata.Wrong(kChatTemplates, text::Concat(text::Quoted(name), " is not UTF-8"));
    }
    MOE_ASSIGN_OR_RETURN(std::string source, Utf8Text(metadata, text::Concat(kChatTemplate, ".", name)));
    list.push_back({{"name", name}, {"template", std::move(source)}});
  }
  return list;
}

json AddedTokensDecoder(const GgufVocabulary& vocabulary) {
  json decoder = json::object();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const GgufToken& token = vocabulary.tokens[id];
    if (!token.added()) continue;
    decoder[std::to_string(id)] = {{"content", std::string(token.text)},
                                   {"lstrip", false},
                                   {"normalized", false},
                                   {"rstrip", false},
                                   {"single_word", false},
                                   {"special", token.special()}};
  }
  return decoder;
}

absl::StatusOr<json> TokenizerConfig(const GgufMetadata& metadata, bool begins_with_bos) {
  json config = json::object();
  for (const auto& [field, key] : {std::pair("bos_token", kBos), std::pair("eos_token", kEos),
                                   std::pair("unk_token", kUnknown), std::pair("pad_token", kPadding)}) {
    MOE_ASSIGN_OR_RETURN(const std::optional<NamedToken> token, FindNamedToken(metadata, key));
    if (token.has_value()) config[field] = token->text;
  }
  bool add_bos = begins_with_bos;
  if (metadata.Has(kAddBos)) {
    MOE_ASSIGN_OR_RETURN(add_bos, metadata.Flag(kAddBos));
  }
  if (add_bos && !metadata.Has(kBos)) {
    return metadata.Wrong(kBos, "missing, but texts begin with this token");
  }
  config["add_bos_token"] = add_bos;
  if (metadata.Has(kAddEos)) {
    MOE_ASSIGN_OR_RETURN(const bool add_eos, metadata.Flag(kAddEos));
    config["add_eos_token"] = add_eos;
  }
  MOE_ASSIGN_OR_RETURN(json templates, ChatTemplates(metadata));
  if (!templates.is_null()) config["chat_template"] = std::move(templates);
  return config;
}

absl::StatusOr<json> StopIds(const GgufMetadata& metadata) {
  std::vector<int32_t> ids;
  for (const std::string_view key : {kEos, kEot, kEom}) {
    MOE_ASSIGN_OR_RETURN(const std::optional<NamedToken> token, FindNamedToken(metadata, key));
    if (token.has_value()) ids.push_back(token->id);
  }
  if (metadata.Has(kGgufTokens) && metadata.Has(kGgufTokenTypes)) {
    MOE_ASSIGN_OR_RETURN(const std::vector<std::string>* const texts, metadata.Texts(kGgufTokens));
    MOE_ASSIGN_OR_RETURN(const std::vector<int64_t>* const types, metadata.Integers(kGgufTokenTypes));
    for (size_t id = 0; id < std::min(texts->size(), types->size()); ++id) {
      if ((*types)[id] != static_cast<int64_t>(GgufTokenType::kControl)) continue;
      if (std::ranges::find(kEndsOfAnswers, (*texts)[id]) == std::end(kEndsOfAnswers)) continue;
      ids.push_back(static_cast<int32_t>(id));
    }
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

absl::StatusOr<json> GenerationConfig(const GgufMetadata& metadata) {
  json config = json::object();
  MOE_ASSIGN_OR_RETURN(const std::optional<NamedToken> bos, FindNamedToken(metadata, kBos));
  if (bos.has_value()) config["bos_token_id"] = bos->id;
  MOE_ASSIGN_OR_RETURN(json stops, StopIds(metadata));
  if (!stops.empty()) config["eos_token_id"] = std::move(stops);
  absl::Status status;
  GgufFields sampling(metadata, "general.sampling", &status);
  if (sampling.Has("temp")) config["temperature"] = sampling.Number("temp");
  if (sampling.Has("top_k")) config["top_k"] = sampling.Int("top_k", -1, INT32_MAX);
  if (sampling.Has("top_p")) config["top_p"] = sampling.Number("top_p");
  if (sampling.Has("min_p")) config["min_p"] = sampling.Number("min_p");
  if (sampling.Has("penalty_repeat")) config["repetition_penalty"] = sampling.Number("penalty_repeat");
  MOE_RETURN_IF_ERROR(status);
  return config;
}

}  // namespace

absl::Status AddGgufTexts(const GgufMetadata& metadata, int64_t rows, CheckpointDocuments* documents) {
  bool begins_with_bos = false;
  json ranks_config = json::object();
  if (documents->tokenizer_json.empty() && documents->tiktoken_ranks.empty()) {
    if (metadata.Has(kTokenizerJson)) {
      MOE_ASSIGN_OR_RETURN(documents->tokenizer_json, Utf8Text(metadata, kTokenizerJson));
    } else {
      MOE_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, ReadGgufVocabulary(metadata, rows));
      MOE_ASSIGN_OR_RETURN(GgufTokenizer tokenizer, MakeGgufTokenizer(metadata, vocabulary));
      begins_with_bos = tokenizer.begins_with_bos;
      documents->tokenizer_json = std::move(tokenizer.tokenizer_json);
      documents->tiktoken_ranks = std::move(tokenizer.tiktoken_ranks);
      if (!documents->tiktoken_ranks.empty()) {
        ranks_config["tokenizer_class"] = tokenizer.tokenizer_class;
        ranks_config["added_tokens_decoder"] = AddedTokensDecoder(vocabulary);
      }
    }
  }
  if (documents->tokenizer_config_json.empty()) {
    MOE_ASSIGN_OR_RETURN(json config, TokenizerConfig(metadata, begins_with_bos));
    config.update(ranks_config);
    documents->tokenizer_config_json = config.dump();
  }
  if (documents->generation_config_json.empty()) {
    MOE_ASSIGN_OR_RETURN(const json config, GenerationConfig(metadata));
    documents->generation_config_json = config.dump();
    documents->generation_config_source = "GGUF";
  }
  return absl::OkStatus();
}

}  // namespace moestro::checkpoint
