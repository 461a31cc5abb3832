#include "common/checkpoint/tokenizer_ids.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/text/json/json.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

using nlohmann::json;

constexpr char kTokenizer[] = "tokenizer.json";
constexpr char kTokenizerConfig[] = "tokenizer_config.json";

absl::StatusOr<int32_t> CheckId(const json& value, std::string_view token, int64_t vocab_size) {
  const auto* id = value.get_ptr<const json::number_unsigned_t*>();
  if (id == nullptr || *id >= static_cast<uint64_t>(vocab_size)) {
    return absl::InvalidArgumentError(absl::StrCat(kTokenizer, ": token ", text::Quoted(token), ": id ",
                                                   text::Describe(value), " is not in [0, vocab_size = ", vocab_size,
                                                   ") of config.json"));
  }
  return static_cast<int32_t>(*id);
}

// Calls visit(text, id) for each of added_tokens. `visit` returns void.
template <typename Visit>
absl::Status VisitAddedTokens(const json& tokenizer, int64_t vocab_size, Visit visit) {
  const auto added = tokenizer.find("added_tokens");
  if (added == tokenizer.end() || added->is_null()) return absl::OkStatus();
  if (!added->is_array()) return absl::InvalidArgumentError(absl::StrCat(kTokenizer, ": added_tokens: not an array"));
  for (const json& token : *added) {
    const bool complete =
        token.is_object() && token.contains("id") && token.contains("content") && token["content"].is_string();
    if (!complete) {
      return absl::InvalidArgumentError(absl::StrCat(kTokenizer, ": added_tokens: an entry lacks id or content"));
    }
    const std::string& text = token["content"].get_ref<const std::string&>();
    MOE_ASSIGN_OR_RETURN(const int32_t id, CheckId(token["id"], text, vocab_size));
    visit(text, id);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> TokenCount(std::string_view tokenizer_json, int64_t vocab_size) {
  MOE_ASSIGN_OR_RETURN(const json tokenizer, text::ParseJsonObject(tokenizer_json, kTokenizer));
  const json::json_pointer vocab_path("/model/vocab");
  if (!tokenizer.contains(vocab_path) || !tokenizer[vocab_path].is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(kTokenizer, ": model.vocab: missing or not an object"));
  }
  int64_t count = 0;
  for (const auto& [text, value] : tokenizer[vocab_path].items()) {
    MOE_ASSIGN_OR_RETURN(const int32_t id, CheckId(value, text, vocab_size));
    count = std::max<int64_t>(count, id + int64_t{1});
  }
  MOE_RETURN_IF_ERROR(VisitAddedTokens(tokenizer, vocab_size, [&](const std::string&, int32_t id) {
    count = std::max<int64_t>(count, id + int64_t{1});
  }));
  if (count == 0) return absl::InvalidArgumentError(absl::StrCat(kTokenizer, ": model.vocab: has no tokens"));
  return count;
}

absl::StatusOr<TokenIds> AddedTokens(const json& tokenizer, const json& tokenizer_config, int64_t vocab_size) {
  TokenIds ids;
  MOE_RETURN_IF_ERROR(
      VisitAddedTokens(tokenizer, vocab_size, [&](const std::string& text, int32_t id) { ids.emplace(text, id); }));
  const auto decoder = tokenizer_config.find("added_tokens_decoder");
  if (decoder == tokenizer_config.end() || !decoder->is_object()) return ids;
  for (const auto& [key, token] : decoder->items()) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(key, &id) || id < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(kTokenizerConfig, ": added_tokens_decoder: ", text::Quoted(key), " is not a token id"));
    }
    // Slots past the last row of the embedding are reserved names that no text can produce.
    const bool usable =
        id < vocab_size && token.is_object() && token.contains("content") && token["content"].is_string();
    if (usable) ids.emplace(token["content"].get<std::string>(), id);
  }
  return ids;
}

}  // namespace moestro::checkpoint
