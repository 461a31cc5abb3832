#include "common/checkpoint/named_tokens.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/text/json/json.h"
#include "common/text/json/raw_field.h"

namespace moestro::checkpoint {
namespace {

using nlohmann::json;

// The fields of special tokens, in the order in which transformers adds them.
constexpr const char* kFields[] = {"bos_token",
                                   "eos_token",
                                   "unk_token",
                                   "sep_token",
                                   "pad_token",
                                   "cls_token",
                                   "mask_token",
                                   "extra_special_tokens",
                                   "additional_special_tokens"};

json Token(const std::string& content, bool special) {
  return {{"content", content}, {"special", special}, {"normalized", !special}};
}

// {"content": ...}, or the text itself.
void AddSpecial(const json& token, std::vector<json>& tokens) {
  if (token.is_string()) {
    tokens.push_back(Token(token.get<std::string>(), /*special=*/true));
  } else if (token.is_object()) {
    json special = token;
    special["special"] = true;
    tokens.push_back(std::move(special));
  }
}

absl::StatusOr<json> Parse(std::string_view text, const char* file) {
  if (text.empty()) return json::object();
  return text::ParseJsonObject(text, file);
}

// In the order in which they are added.
absl::StatusOr<std::vector<json>> NamedTokens(const TokenNames& names) {
  MOE_ASSIGN_OR_RETURN(json config, Parse(names.tokenizer_config_json, "tokenizer_config.json"));
  std::map<int64_t, json> by_id;
  if (const auto decoder = config.find("added_tokens_decoder"); decoder != config.end() && decoder->is_object()) {
    for (const auto& [key, token] : decoder->items()) {
      int64_t id = 0;
      if (absl::SimpleAtoi(key, &id)) by_id[id] = token;
    }
  } else {
    MOE_ASSIGN_OR_RETURN(const json specials, Parse(names.special_tokens_map_json, "special_tokens_map.json"));
    for (const auto& [field, value] : specials.items()) config[field] = value;
    MOE_ASSIGN_OR_RETURN(const json added, Parse(names.added_tokens_json, "added_tokens.json"));
    for (const auto& [content, id] : added.items()) {
      if (id.is_number_integer()) by_id[id.get<int64_t>()] = Token(content, /*special=*/false);
    }
  }
  std::vector<json> tokens;
  for (auto& [id, token] : by_id) tokens.push_back(std::move(token));
  for (const char* field : kFields) {
    const json value = config.value(field, json());
    const bool is_token = value.is_object() && value.contains("content");
    if (value.is_string() || is_token) {
      AddSpecial(value, tokens);
    } else if (value.is_structured()) {  // a list, or an object of named ones
      for (const json& one : value) AddSpecial(one, tokens);
    }
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::string> WithNamedTokens(std::string tokenizer_json, const TokenNames& names, int64_t vocab_size) {
  MOE_ASSIGN_OR_RETURN(const std::vector<json> named, NamedTokens(names));
  const json file = json::parse(tokenizer_json, nullptr, /*allow_exceptions=*/false);
  static const json::json_pointer kVocabulary("/model/vocab");
  if (named.empty() || !file.is_object() || !file.contains(kVocabulary) || !file[kVocabulary].is_object()) {
    return tokenizer_json;
  }
  const json& vocabulary = file[kVocabulary];
  const json added = file.value("added_tokens", json::array());
  absl::flat_hash_set<std::string> known;
  auto next = static_cast<int64_t>(vocabulary.size());
  for (const json& token : added) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) return tokenizer_json;
    known.insert(token["content"].get<std::string>());
    const json id = token.value("id", json());
    if (id.is_number_integer()) next = std::max(next, id.get<int64_t>() + 1);
  }
  std::string missing;
  for (json token : named) {
    const json content = token.is_object() ? token.value("content", json()) : json();
    if (!content.is_string() || content.get_ref<const std::string&>().empty()) continue;
    if (!known.insert(content.get<std::string>()).second) continue;
    const auto found = vocabulary.find(content.get_ref<const std::string&>());
    if (found == vocabulary.end() && next >= vocab_size) continue;
    token["id"] = found == vocabulary.end() ? json(next++) : *found;
    token.erase("__type");
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", token.dump());
  }
  if (missing.empty()) return tokenizer_json;
  // The rest stays as it was written.
  const std::string_view list = text::RawField(tokenizer_json, "added_tokens");
  if (!list.starts_with('[')) {
    return absl::StrCat(R"({"added_tokens": [)", missing, "], ", tokenizer_json.substr(tokenizer_json.find('{') + 1));
  }
  const auto end = static_cast<size_t>(list.data() - tokenizer_json.data()) + list.size() - 1;
  return tokenizer_json.insert(end, added.empty() ? missing : ", " + missing);
}

}  // namespace moestro::checkpoint
