#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/json/json.h"
#include "common/text/json_field.h"
#include "common/text/tokenizer_pipeline_json.h"
#include "common/text/tokenizer_spec.h"

namespace moestro::text {
namespace {

using IdOwners = absl::flat_hash_map<int32_t, std::string>;

absl::Status ClaimId(int32_t id, const std::string& text, IdOwners* owners) {
  const auto [owner, is_new] = owners->try_emplace(id, text);
  if (is_new || owner->second == text) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat("token id ", id, " belongs to both '", owner->second, "' and '", text, "'"));
}

absl::Status ParseVocabulary(const Json& model, TokenizerSpec* spec, IdOwners* owners) {
  const Json* vocabulary = FindField(model, "vocab");
  if (vocabulary == nullptr || !vocabulary->is_object()) {
    return absl::InvalidArgumentError("model: field 'vocab' must be an object of token ids");
  }
  spec->vocabulary.reserve(vocabulary->size());
  for (const auto& [spelling, value] : vocabulary->items()) {
    MOE_ASSIGN_OR_RETURN(const int32_t id, TokenIdValue(value, Concat("model.vocab['", spelling, "']")));
    MOE_RETURN_IF_ERROR(ClaimId(id, spelling, owners));
    spec->vocabulary.emplace(spelling, id);
  }
  return absl::OkStatus();
}

// A merge is "left right" or ["left", "right"].
absl::StatusOr<std::pair<std::string, std::string>> MergeParts(const Json& merge, const std::string& where) {
  if (const auto* text = merge.get_ptr<const std::string*>()) {
    const size_t space = text->find(' ');
    if (space != std::string::npos && text->find(' ', space + 1) == std::string::npos) {
      return std::pair(text->substr(0, space), text->substr(space + 1));
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair(*merge[0].get_ptr<const std::string*>(), *merge[1].get_ptr<const std::string*>());
  }
  return absl::InvalidArgumentError(where + ": must be \"left right\" or [\"left\", \"right\"]");
}

absl::Status ParseMerges(const Json& model, TokenizerSpec* spec) {
  MOE_ASSIGN_OR_RETURN(const Json* merges, RequiredArray(model, "merges", "model"));
  spec->merges.reserve(merges->size());
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    const std::string where = Concat("model.merges[", rank, "]");
    MOE_ASSIGN_OR_RETURN(const auto parts, MergeParts((*merges)[rank], where));
    int32_t ids[3];
    const std::string texts[3] = {parts.first, parts.second, parts.first + parts.second};
    for (int i = 0; i < 3; ++i) {
      const auto found = spec->vocabulary.find(texts[i]);
      if (found == spec->vocabulary.end()) {
        return absl::InvalidArgumentError(Concat(where, ": token '", texts[i], "' is not in model.vocab"));
      }
      ids[i] = found->second;
    }
    spec->merges.push_back({static_cast<uint32_t>(rank), ids[0], ids[1], ids[2]});
  }
  return absl::OkStatus();
}

absl::Status CheckModelKind(const Json& model) {
  // Old files omit the type for BPE.
  MOE_ASSIGN_OR_RETURN(const std::string type, StringField(model, "type", "BPE", "model"));
  if (type != "BPE") return UnsupportedField("model.type", type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    MOE_ASSIGN_OR_RETURN(const std::string text, StringField(model, key, "", "model"));
    if (!text.empty()) return UnsupportedField(Concat("model.", key), text);
  }
  if (const Json* dropout = FindField(model, "dropout"); dropout != nullptr && *dropout != 0) {
    return UnsupportedField("model.dropout", "anything but 0");
  }
  return absl::OkStatus();
}

absl::Status ParseModel(const Json& file, TokenizerSpec* spec, IdOwners* owners) {
  const Json* model = FindField(file, "model");
  if (model == nullptr || !model->is_object()) return absl::InvalidArgumentError("field 'model' is missing");
  MOE_RETURN_IF_ERROR(CheckModelKind(*model));
  MOE_ASSIGN_OR_RETURN(spec->ignore_merges, BoolField(*model, "ignore_merges", false, "model"));
  MOE_RETURN_IF_ERROR(ParseVocabulary(*model, spec, owners));
  return ParseMerges(*model, spec);
}

// With byte_fallback, and only then, text that has no tokens is spelled by those of its bytes. So none is unknown, and
// "unk_token" and "fuse_unk" have no effect.
absl::Status CheckFallback(const Json& model, const TokenizerSpec& spec) {
  MOE_ASSIGN_OR_RETURN(const bool byte_fallback, BoolField(model, "byte_fallback", false, "model"));
  MOE_RETURN_IF_ERROR(BoolField(model, "fuse_unk", false, "model"));
  MOE_RETURN_IF_ERROR(StringField(model, "unk_token", "", "model"));
  if (byte_fallback != (spec.spelling == Spelling::kText)) {
    return UnsupportedField("model.byte_fallback", byte_fallback ? "true with a ByteLevel pre_tokenizer"
                                                                 : "false without a ByteLevel pre_tokenizer");
  }
  if (spec.spelling == Spelling::kByteLevel) return absl::OkStatus();
  absl::flat_hash_map<int32_t, int> bytes;  // by token
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = spec.vocabulary.find(ByteTokenSpelling(static_cast<unsigned char>(byte)));
    if (found == spec.vocabulary.end()) {
      return absl::InvalidArgumentError(Concat("model.byte_fallback is true, but model.vocab has no token '",
                                               ByteTokenSpelling(static_cast<unsigned char>(byte)), "'"));
    }
    bytes[found->second] = byte;
  }
  for (const BpeMerge& merge : spec.merges) {
    if (bytes.contains(merge.left) || bytes.contains(merge.right)) {
      return UnsupportedField(Concat("model.merges[", merge.rank, "]"), "a merge of a byte token");
    }
  }
  return absl::OkStatus();
}

absl::Status ParseAddedTokens(const Json& file, TokenizerSpec* spec, IdOwners* owners) {
  if (FindField(file, "added_tokens") == nullptr) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(const Json* entries, RequiredArray(file, "added_tokens", "tokenizer.json"));
  absl::flat_hash_map<std::string, int32_t> ids;
  for (size_t i = 0; i < entries->size(); ++i) {
    const std::string where = Concat("added_tokens[", i, "]");
    const Json* id = FindField((*entries)[i], "id");
    if (id == nullptr) return absl::InvalidArgumentError(where + ": field 'id' is missing");
    MOE_ASSIGN_OR_RETURN(const int32_t value, TokenIdValue(*id, where));
    MOE_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken((*entries)[i], value, where));
    MOE_RETURN_IF_ERROR(Annotate(ClaimId(token.id, token.content, owners), where));
    const auto in_vocabulary = spec->vocabulary.find(token.content);
    if (!ids.try_emplace(token.content, token.id).second ||
        (in_vocabulary != spec->vocabulary.end() && in_vocabulary->second != token.id)) {
      return absl::InvalidArgumentError(Concat(where, ": token '", token.content, "' has two ids"));
    }
    spec->added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerSpec> Parse(const Json& file) {
  TokenizerSpec spec;
  IdOwners owners;
  MOE_RETURN_IF_ERROR(ParseModel(file, &spec, &owners));
  MOE_RETURN_IF_ERROR(ParseAddedTokens(file, &spec, &owners));
  MOE_RETURN_IF_ERROR(ParsePipeline(file, &spec));
  MOE_RETURN_IF_ERROR(CheckFallback(*FindField(file, "model"), spec));
  for (const std::vector<int32_t>& ids : {spec.prefix, spec.suffix}) {
    for (const int32_t id : ids) {
      if (!owners.contains(id)) {
        return absl::InvalidArgumentError(Concat("post_processor: no token has id ", id));
      }
    }
  }
  return spec;
}

}  // namespace

absl::StatusOr<AddedToken> ParseAddedToken(const Json& entry, int32_t id, const std::string& where) {
  AddedToken token;
  token.id = id;
  MOE_ASSIGN_OR_RETURN(token.content, RequiredString(entry, "content", where));
  if (token.content.empty()) return absl::InvalidArgumentError(where + ": field 'content' is empty");
  MOE_ASSIGN_OR_RETURN(token.single_word, BoolField(entry, "single_word", false, where));
  MOE_ASSIGN_OR_RETURN(token.lstrip, BoolField(entry, "lstrip", false, where));
  MOE_ASSIGN_OR_RETURN(token.rstrip, BoolField(entry, "rstrip", false, where));
  MOE_ASSIGN_OR_RETURN(token.special, BoolField(entry, "special", false, where));
  MOE_ASSIGN_OR_RETURN(token.normalized, BoolField(entry, "normalized", !token.special, where));
  return token;
}

std::string ByteTokenSpelling(unsigned char byte) { return absl::StrFormat("<0x%02X>", byte); }

absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view tokenizer_json) {
  constexpr const char* kFile = "tokenizer.json";
  MOE_ASSIGN_OR_RETURN(const Json file, ParseJsonObject(tokenizer_json, kFile));
  absl::StatusOr<TokenizerSpec> spec = Parse(file);
  if (!spec.ok()) return Annotate(spec.status(), kFile);
  return spec;
}

}  // namespace moestro::text
