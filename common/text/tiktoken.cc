#include "common/text/tiktoken.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "common/base/status.h"
#include "common/text/byte_level.h"
#include "common/text/concat.h"
#include "common/text/json/json.h"
#include "common/text/json/quoted.h"
#include "common/text/json_field.h"
#include "common/text/tokenizer_pipeline_json.h"

namespace moestro::text {
namespace {

constexpr char kConfigFile[] = "tokenizer_config.json";
constexpr char kRanksFile[] = "tiktoken ranks";

// The longest token of published vocabularies has 128 bytes. The cost of finding a token's merges grows with the square
// of its length.
constexpr size_t kMaxTokenBytes = 1024;
constexpr size_t kMaxTokens = size_t{1} << 20;

// The published pattern, in Oniguruma's syntax, which has the same meaning as that of tiktoken here.
// Runs of Han characters, and words of other letters that change from upper to lower case once. The published sets are
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]] and the same with Ll. General categories partition all characters. So the
// sets are written by what they lack, as one class each: a match of a long word then needs no stack.
constexpr char kKimiPattern[] =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]*[^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]+[^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct TiktokenFamily {
  std::string_view model_type;
  std::string_view tokenizer_class;
  std::string_view pattern;
  int32_t reserved;  // ids after the ranks; those without a name are <|reserved_token_ID|>
};

constexpr TiktokenFamily kFamilies[] = {
    {"kimi_k2", "TikTokenTokenizer", kKimiPattern, 256},
    {"dbrx", "TiktokenTokenizerWrapper", kCl100kPattern, 0},
};

absl::StatusOr<TiktokenFamily> FindFamily(std::string_view tokenizer_class, std::string_view model_type) {
  for (const TiktokenFamily& family : kFamilies) {
    if (family.tokenizer_class == tokenizer_class) return family;
  }
  for (const TiktokenFamily& family : kFamilies) {
    if (family.model_type == model_type) return family;
  }
  return absl::UnimplementedError(
      Concat(kConfigFile, ": tokenizer_class '", Printable(tokenizer_class), "' of model_type '", Printable(model_type),
             "': its way to split text is not known here; convert its ranks to a tokenizer.json"));
}

struct RankedToken {
  std::string bytes;
  uint32_t rank;
};

absl::StatusOr<RankedToken> ParseLine(std::string_view line, size_t number) {
  const std::string where = Concat(kRanksFile, ", line ", number);
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) {
    return absl::InvalidArgumentError(where + ": must be a Base64 token, a space and a rank");
  }
  RankedToken token;
  if (!absl::Base64Unescape(std::string(line.substr(0, space)), &token.bytes) || token.bytes.empty()) {
    return absl::InvalidArgumentError(where + ": the token is not Base64");
  }
  if (token.bytes.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(
        Concat(where, ": the token has ", token.bytes.size(), " bytes, more than ", kMaxTokenBytes));
  }
  const std::string rank(line.substr(space + 1));
  // SimpleAtoi ignores spaces around the number.
  if (rank.find_first_not_of("0123456789") != std::string::npos || !absl::SimpleAtoi(rank, &token.rank)) {
    return absl::InvalidArgumentError(where + ": the rank is not a number");
  }
  return token;
}

// The tokens by rank.
absl::StatusOr<std::vector<std::string>> ParseRanks(std::string_view text) {
  std::vector<RankedToken> tokens;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (tokens.size() == kMaxTokens) {
      return absl::InvalidArgumentError(Concat(kRanksFile, ": more than ", kMaxTokens, " tokens"));
    }
    MOE_ASSIGN_OR_RETURN(RankedToken token, ParseLine(line, number));
    tokens.push_back(std::move(token));
  }
  std::vector<std::string> by_rank(tokens.size());
  for (RankedToken& token : tokens) {
    if (token.rank >= by_rank.size()) {
      return absl::InvalidArgumentError(Concat(kRanksFile, ": rank ", token.rank, " of ", tokens.size(),
                                               " tokens: ranks must be 0, 1, 2, ... without a gap"));
    }
    if (!by_rank[token.rank].empty()) {
      return absl::InvalidArgumentError(Concat(kRanksFile, ": two tokens have rank ", token.rank));
    }
    by_rank[token.rank] = std::move(token.bytes);
  }
  return by_rank;
}

using IdOfBytes = absl::flat_hash_map<std::string, int32_t>;

absl::StatusOr<IdOfBytes> IdsOf(const std::vector<std::string>& by_rank) {
  IdOfBytes ids;
  ids.reserve(by_rank.size());
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto [other, is_new] = ids.try_emplace(by_rank[rank], static_cast<int32_t>(rank));
    if (!is_new) {
      return absl::InvalidArgumentError(
          Concat(kRanksFile, ": ranks ", other->second, " and ", rank, " are the same token"));
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!ids.contains(std::string(1, static_cast<char>(byte)))) {
      return absl::InvalidArgumentError(Concat(kRanksFile, ": no token for byte ", byte, "; the file is not complete"));
    }
  }
  return ids;
}

// tiktoken merges the two neighbours whose bytes together are the token of the lowest rank. So every way to cut a token
// into two tokens is a merge, and has the token's rank.
std::vector<BpeMerge> MergesOf(const std::vector<std::string>& by_rank, const IdOfBytes& ids) {
  std::vector<BpeMerge> merges;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const std::string& token = by_rank[rank];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(token.substr(cut));
      if (right == ids.end()) continue;
      merges.push_back({static_cast<uint32_t>(rank), left->second, right->second, static_cast<int32_t>(rank)});
    }
  }
  return merges;
}

// The tokens of added_tokens_decoder, {"100": {"content": "<|end|>", ...}, ...}, by id.
absl::StatusOr<std::vector<AddedToken>> NamedTokens(const Json& config, int32_t id_limit) {
  std::vector<AddedToken> tokens;
  const Json* decoder = FindField(config, "added_tokens_decoder");
  if (decoder == nullptr) return tokens;
  if (!decoder->is_object()) {
    return absl::InvalidArgumentError(Concat(kConfigFile, ": field 'added_tokens_decoder' must be an object"));
  }
  for (const auto& [key, entry] : decoder->items()) {
    const std::string where = Concat(kConfigFile, ": added_tokens_decoder['", Printable(key), "']");
    int32_t id = 0;
    if (key.find_first_not_of("0123456789") != std::string::npos || !absl::SimpleAtoi(key, &id)) {
      return absl::InvalidArgumentError(where + ": is not a token id");
    }
    if (id >= id_limit) continue;
    MOE_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken(entry, id, where));
    tokens.push_back(std::move(token));
  }
  std::ranges::sort(tokens, {}, &AddedToken::id);
  return tokens;
}

void AddReserved(int32_t first, int32_t end, std::vector<AddedToken>* tokens) {
  std::vector<AddedToken> reserved;
  for (int32_t id = first; id < end; ++id) {
    if (std::ranges::binary_search(*tokens, id, {}, &AddedToken::id)) continue;
    reserved.push_back({.id = id, .content = Concat("<|reserved_token_", id, "|>"), .special = true});
  }
  tokens->insert(tokens->end(), reserved.begin(), reserved.end());
  std::ranges::sort(*tokens, {}, &AddedToken::id);
}

absl::Status CheckAddedTokens(const std::vector<AddedToken>& tokens, size_t ranks) {
  absl::flat_hash_map<std::string, int32_t> ids;
  for (const AddedToken& token : tokens) {
    const std::string where = Concat(kConfigFile, ": added_tokens_decoder['", token.id, "']");
    if (static_cast<size_t>(token.id) < ranks) {
      return absl::InvalidArgumentError(Concat(where, ": ids below ", ranks, " belong to the ", kRanksFile));
    }
    const auto [other, is_new] = ids.try_emplace(token.content, token.id);
    if (!is_new) {
      return absl::InvalidArgumentError(
          Concat(where, ": token '", Printable(token.content), "' has id ", other->second, " too"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> ParseTiktoken(std::string_view ranks, std::string_view tokenizer_config_json,
                                            std::string_view model_type, int32_t id_limit) {
  if (tokenizer_config_json.empty()) {
    return absl::InvalidArgumentError(
        Concat(kConfigFile, ": missing or empty; it has the special tokens of the ", kRanksFile, "; download it too"));
  }
  MOE_ASSIGN_OR_RETURN(const Json config, ParseJsonObject(tokenizer_config_json, kConfigFile));
  MOE_ASSIGN_OR_RETURN(const std::string tokenizer_class, StringField(config, "tokenizer_class", "", kConfigFile));
  MOE_ASSIGN_OR_RETURN(const TiktokenFamily family, FindFamily(tokenizer_class, model_type));
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> by_rank, ParseRanks(ranks));
  MOE_ASSIGN_OR_RETURN(const IdOfBytes ids, IdsOf(by_rank));
  TokenizerSpec spec;
  MOE_ASSIGN_OR_RETURN(spec.added_tokens, NamedTokens(config, id_limit));
  const auto first_special = static_cast<int32_t>(by_rank.size());
  AddReserved(first_special, std::min(first_special + family.reserved, id_limit), &spec.added_tokens);
  MOE_RETURN_IF_ERROR(CheckAddedTokens(spec.added_tokens, by_rank.size()));
  spec.vocabulary.reserve(ids.size());
  for (const auto& [bytes, id] : ids) spec.vocabulary.emplace(SpellBytes(bytes), id);
  spec.merges = MergesOf(by_rank, ids);
  spec.ignore_merges = true;
  spec.splits = {{std::string(family.pattern)}};
  return spec;
}

}  // namespace moestro::text
