#include "common/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/status.h"
#include "common/text/byte_level.h"
#include "common/text/concat.h"
#include "common/text/utf8.h"
#include "common/text/utf8_assembler.h"

namespace moestro::text {
namespace {

// Bytes between two calls of EncodeLimits::check: some milliseconds of work.
constexpr size_t kBytesBetweenChecks = 64 << 10;

std::array<int32_t, 256> ByteIds(const absl::flat_hash_map<std::string, int32_t>& vocabulary) {
  std::array<int32_t, 256> ids;
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    const auto found = vocabulary.find(SpellBytes({&value, 1}));
    ids[byte] = found == vocabulary.end() ? Bpe::kNoToken : found->second;
  }
  return ids;
}

absl::Status TooMany(size_t max_tokens) {
  return absl::OutOfRangeError(Concat("the text has more than ", max_tokens, " tokens"));
}

std::vector<AddedToken> WithNormalized(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> selected;
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized) selected.push_back(token);
  }
  return selected;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json,
                                                                     const TokenizerConfig& config) {
  MOE_ASSIGN_OR_RETURN(TokenizerSpec spec, ParseTokenizerJson(tokenizer_json));
  const std::vector<std::string_view> patterns(spec.split_patterns.begin(), spec.split_patterns.end());
  absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create(patterns);
  if (!pre_tokenizer.ok()) return Annotate(pre_tokenizer.status(), "tokenizer.json: pre_tokenizer");
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(spec), *std::move(pre_tokenizer)));
  MOE_RETURN_IF_ERROR(tokenizer->ApplyConfig(config));
  return tokenizer;
}

Tokenizer::Tokenizer(TokenizerSpec spec, PreTokenizer pre_tokenizer)
    : vocabulary_(std::move(spec.vocabulary)),
      pre_tokenizer_(std::move(pre_tokenizer)),
      raw_matcher_(WithNormalized(spec.added_tokens, false)),
      normalized_matcher_(WithNormalized(spec.added_tokens, true)),
      bpe_(ByteIds(vocabulary_), spec.merges),
      ignore_merges_(spec.ignore_merges),
      prefix_(std::move(spec.prefix)),
      suffix_(std::move(spec.suffix)),
      added_tokens_(std::move(spec.added_tokens)) {
  tokens_.reserve(vocabulary_.size() + added_tokens_.size());
  for (const auto& [spelling, id] : vocabulary_) {
    // Only control tokens have spellings that are not byte-level; these represent themselves.
    tokens_[id] = {UnspellBytes(spelling).value_or(spelling), /*special=*/false};
    size_ = std::max(size_, id + 1);
  }
  for (const AddedToken& token : added_tokens_) {
    tokens_[token.id] = {token.content, token.special};
    added_[token.content] = token.id;
    size_ = std::max(size_, token.id + 1);
  }
  for (const auto& [id, token] : tokens_) longest_token_bytes_ = std::max(longest_token_bytes_, token.bytes.size());
}

absl::StatusOr<int32_t> Tokenizer::ConfiguredToken(const std::string& content, const char* field) const {
  const std::optional<int32_t> id = TokenId(content);
  if (id.has_value()) return *id;
  return absl::InvalidArgumentError(
      Concat("tokenizer_config.json: '", field, "' is '", content, "', which tokenizer.json does not have"));
}

absl::Status Tokenizer::ApplyConfig(const TokenizerConfig& config) {
  if (config.add_bos_token) {
    MOE_ASSIGN_OR_RETURN(const int32_t bos, ConfiguredToken(config.bos_token, "bos_token"));
    if (prefix_.empty() || prefix_.front() != bos) prefix_.insert(prefix_.begin(), bos);
  }
  if (config.add_eos_token) {
    MOE_ASSIGN_OR_RETURN(const int32_t eos, ConfiguredToken(config.eos_token, "eos_token"));
    if (suffix_.empty() || suffix_.back() != eos) suffix_.push_back(eos);
  }
  return absl::OkStatus();
}

std::vector<AddedTokenMatcher::Segment> Tokenizer::FindAddedTokens(std::string_view text) const {
  std::vector<AddedTokenMatcher::Segment> raw;
  raw_matcher_.Split(text, &raw);
  std::vector<AddedTokenMatcher::Segment> segments;
  for (const AddedTokenMatcher::Segment& segment : raw) {
    if (segment.id == AddedTokenMatcher::kPlainText) {
      normalized_matcher_.Split(segment.text, &segments);
    } else {
      segments.push_back(segment);
    }
  }
  return segments;
}

absl::Status Tokenizer::EncodePlain(std::string_view text, const EncodeLimits& limits,
                                    std::vector<int32_t>* ids) const {
  const auto check = [&] { return limits.check ? limits.check() : absl::OkStatus(); };
  MOE_RETURN_IF_ERROR(check());
  // Every piece has at least one token, and every token at most longest_token_bytes_.
  const size_t room = limits.max_tokens - std::min(limits.max_tokens, ids->size());
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string_view> pieces, pre_tokenizer_.Split(text, room));
  size_t unchecked = kBytesBetweenChecks;
  for (const std::string_view piece : pieces) {
    if (piece.size() / longest_token_bytes_ > room || ids->size() > limits.max_tokens) {
      return TooMany(limits.max_tokens);
    }
    if (piece.size() > limits.max_piece_bytes) {
      return absl::InvalidArgumentError(Concat("the text has ", piece.size(), " bytes without a break between words; ",
                                               "at most ", limits.max_piece_bytes, " can be tokenized"));
    }
    if (unchecked >= kBytesBetweenChecks) {
      MOE_RETURN_IF_ERROR(check());
      unchecked = 0;
    }
    unchecked += piece.size();
    if (ignore_merges_) {
      const auto whole = vocabulary_.find(SpellBytes(piece));
      // Control tokens are matched earlier or, in untrusted text, not at all.
      if (whole != vocabulary_.end() && !added_.contains(std::string(piece))) {
        ids->push_back(whole->second);
        continue;
      }
    }
    MOE_RETURN_IF_ERROR(bpe_.Encode(piece, ids));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view utf8, const EncodeOptions& options,
                                                       const EncodeLimits& limits) const {
  if (const auto offset = FindInvalidUtf8(utf8)) {
    return absl::InvalidArgumentError(Concat("the text is not valid UTF-8 at byte ", *offset));
  }
  std::vector<int32_t> ids;
  if (options.add_special_tokens) ids = prefix_;
  if (options.parse_special_tokens) {
    for (const AddedTokenMatcher::Segment& segment : FindAddedTokens(utf8)) {
      if (segment.id == AddedTokenMatcher::kPlainText) {
        MOE_RETURN_IF_ERROR(EncodePlain(segment.text, limits, &ids));
      } else {
        ids.push_back(segment.id);
      }
    }
  } else {
    MOE_RETURN_IF_ERROR(EncodePlain(utf8, limits, &ids));
  }
  if (options.add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  if (ids.size() > limits.max_tokens) return TooMany(limits.max_tokens);
  return ids;
}

std::string Tokenizer::DecodeBytes(int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? std::string() : found->second.bytes;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  Utf8Assembler assembler;
  std::string text;
  for (const int32_t id : ids) {
    if (!skip_special || !IsSpecial(id)) text += assembler.Push(DecodeBytes(id));
  }
  return text + assembler.Flush();
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const auto found = tokens_.find(id);
  return found != tokens_.end() && found->second.special;
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view content) const {
  for (const auto* map : {&added_, &vocabulary_}) {
    if (const auto found = map->find(std::string(content)); found != map->end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace moestro::text
