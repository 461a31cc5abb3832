#include "common/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "common/text/byte_level.h"
#include "common/text/concat.h"
#include "common/text/tiktoken.h"
#include "common/text/utf8.h"

namespace moestro::text {
namespace {

// Bytes between two calls of EncodeLimits::check: some milliseconds of work.
constexpr size_t kBytesBetweenChecks = 64 << 10;

BpeAlphabet AlphabetOf(const TokenizerSpec& spec) {
  BpeAlphabet alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    const auto found = spec.vocabulary.find(spec.spelling == Spelling::kByteLevel
                                                ? SpellBytes({&value, 1})
                                                : ByteTokenSpelling(static_cast<unsigned char>(byte)));
    alphabet.bytes[byte] = found == spec.vocabulary.end() ? Bpe::kNoToken : found->second;
  }
  if (spec.spelling == Spelling::kByteLevel) return alphabet;
  for (const auto& [spelling, id] : spec.vocabulary) {
    if (spelling.empty() || static_cast<int>(spelling.size()) != Utf8Length(spelling[0])) continue;
    alphabet.code_points[ReadUtf8(spelling, 0).code_point] = id;
  }
  return alphabet;
}

bool IsBlank(std::string_view text, std::string_view mark) {
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text, 0);
    if (!IsUnicodeSpace(step.code_point) && text.substr(0, step.length) != mark) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

// Without the merges that make a control token from plain text: some vocabularies have "<s" and ">". Runs of white
// space are no control tokens.
std::vector<BpeMerge> SafeMerges(const TokenizerSpec& spec) {
  absl::flat_hash_set<int32_t> control;
  for (const AddedToken& token : spec.added_tokens) {
    if (!IsBlank(token.content, spec.mark)) control.insert(token.id);
  }
  std::vector<BpeMerge> merges = spec.merges;
  std::erase_if(merges, [&](const BpeMerge& merge) { return control.contains(merge.result); });
  return merges;
}

absl::Status TooMany(size_t max_tokens) {
  return absl::OutOfRangeError(Concat("the text has more than ", max_tokens, " tokens"));
}

std::vector<AddedToken> RawTokens(const std::vector<AddedToken>& tokens) {
  std::vector<AddedToken> selected;
  for (const AddedToken& token : tokens) {
    if (!token.normalized) selected.push_back(token);
  }
  return selected;
}

// The tokens that are matched in normalized text, which has their normalized contents.
std::vector<AddedToken> NormalizedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer) {
  std::vector<AddedToken> selected;
  for (const AddedToken& token : tokens) {
    if (!token.normalized) continue;
    selected.push_back(token);
    selected.back().content = normalizer.Apply(token.content);
  }
  return selected;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Create(const TokenizerFiles& files,
                                                                   const TokenizerConfig& config) {
  if (files.tokenizer_json.empty() && files.tiktoken_ranks.empty()) {
    return absl::InvalidArgumentError("tokenizer.json: missing or empty; download it, or tiktoken.model, too");
  }
  MOE_ASSIGN_OR_RETURN(TokenizerSpec spec, files.tokenizer_json.empty()
                                               ? ParseTiktoken(files.tiktoken_ranks, files.tokenizer_config_json,
                                                               files.model_type, files.id_limit)
                                               : ParseTokenizerJson(files.tokenizer_json));
  absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create(spec.splits);
  if (!pre_tokenizer.ok()) return Annotate(pre_tokenizer.status(), "tokenizer.json: pre_tokenizer");
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(spec), *std::move(pre_tokenizer)));
  MOE_RETURN_IF_ERROR(tokenizer->ApplyConfig(config));
  return tokenizer;
}

Tokenizer::Tokenizer(TokenizerSpec spec, PreTokenizer pre_tokenizer)
    : spelling_(spec.spelling),
      mark_(spec.mark),
      mark_text_(spec.mark_text),
      stripped_spaces_(spec.stripped_spaces),
      normalizer_(spec.normalizer),
      metaspace_(spec.metaspace),
      pre_tokenizer_(std::move(pre_tokenizer)),
      raw_matcher_(RawTokens(spec.added_tokens)),
      normalized_matcher_(NormalizedTokens(spec.added_tokens, normalizer_)),
      bpe_(AlphabetOf(spec), SafeMerges(spec)),
      ignore_merges_(spec.ignore_merges),
      prefix_(std::move(spec.prefix)),
      suffix_(std::move(spec.suffix)) {
  vocabulary_ = std::move(spec.vocabulary);
  added_tokens_ = std::move(spec.added_tokens);
  if (spelling_ == Spelling::kText) breaks_.emplace(vocabulary_);
  tokens_.reserve(vocabulary_.size() + added_tokens_.size());
  for (const auto& [spelling, id] : vocabulary_) {
    tokens_[id] = {TokenBytes(spelling), /*special=*/false};
    size_ = std::max(size_, id + 1);
    // In text a token stands for its spelling, in byte-level for its bytes, which are not more.
    longest_piece_bytes_ =
        std::max(longest_piece_bytes_, spelling_ == Spelling::kText ? spelling.size() : tokens_[id].bytes.size());
  }
  if (spelling_ == Spelling::kText) {
    for (int byte = 0; byte < 256; ++byte) {
      const auto value = static_cast<unsigned char>(byte);
      tokens_[vocabulary_.at(ByteTokenSpelling(value))].bytes = std::string(1, static_cast<char>(value));
    }
  }
  for (const AddedToken& token : added_tokens_) {
    const bool is_text = spelling_ == Spelling::kText;
    tokens_[token.id] = {is_text ? TokenBytes(token.content) : token.content, token.special};
    added_[token.content] = token.id;
    size_ = std::max(size_, token.id + 1);
  }
  longest_token_bytes_ = longest_piece_bytes_;
  for (const auto& [id, token] : tokens_) longest_token_bytes_ = std::max(longest_token_bytes_, token.bytes.size());
  longest_token_bytes_ *= normalizer_.max_shrink();
}

std::string Tokenizer::TokenBytes(const std::string& spelling) const {
  if (spelling_ == Spelling::kText) return absl::StrReplaceAll(spelling, {{mark_, mark_text_}});
  // Only control tokens have spellings that are not byte-level; these represent themselves.
  return UnspellBytes(spelling).value_or(spelling);
}

absl::StatusOr<int32_t> Tokenizer::ConfiguredToken(const std::string& content, const char* field) const {
  const std::optional<int32_t> id = TokenId(content);
  if (id.has_value()) return *id;
  return absl::InvalidArgumentError(
      Concat("tokenizer_config.json: '", field, "' is '", content, "', which the tokenizer does not have"));
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

// The ids of a text so far, and what they may cost.
struct Tokenizer::Encoding {
  const EncodeLimits& limits;
  std::vector<int32_t> ids = {};
  size_t unchecked = kBytesBetweenChecks;

  // Before `bytes` more are merged.
  absl::Status Check(size_t bytes) {
    if (ids.size() > limits.max_tokens) return TooMany(limits.max_tokens);
    if (unchecked >= kBytesBetweenChecks) {
      if (limits.check) MOE_RETURN_IF_ERROR(limits.check());
      unchecked = 0;
    }
    unchecked += bytes;
    return absl::OkStatus();
  }
};

absl::Status Tokenizer::EncodePiece(std::string_view piece, Encoding& out) const {
  if (ignore_merges_) {
    const auto whole = vocabulary_.find(spelling_ == Spelling::kText ? std::string(piece) : SpellBytes(piece));
    // Control tokens are matched earlier or, in untrusted text, not at all.
    if (whole != vocabulary_.end() && !added_.contains(std::string(piece))) {
      out.ids.push_back(whole->second);
      return out.Check(piece.size());
    }
  }
  const size_t most = out.limits.max_piece_bytes;
  while (!piece.empty()) {
    const std::string_view part = breaks_.has_value() ? breaks_->FirstPiece(piece) : piece;
    if (part.size() > most) {
      return absl::InvalidArgumentError(Concat("the text has ", part.size(), " bytes without a break between words; ",
                                               "at most ", most, " can be tokenized"));
    }
    MOE_RETURN_IF_ERROR(out.Check(part.size()));
    MOE_RETURN_IF_ERROR(bpe_.Encode(part, &out.ids));
    piece.remove_prefix(part.size());
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodePlain(std::string_view text, bool at_start, Encoding& out) const {
  if (out.limits.check) MOE_RETURN_IF_ERROR(out.limits.check());
  // Every piece has at least one token, and every token at most longest_piece_bytes_.
  const size_t room = out.limits.max_tokens - std::min(out.limits.max_tokens, out.ids.size());
  std::string marked;
  std::vector<std::string_view> pieces;
  if (metaspace_.has_value()) {
    marked = metaspace_->Mark(text, at_start);
    pieces = metaspace_->Split(marked);
  } else {
    MOE_ASSIGN_OR_RETURN(pieces, pre_tokenizer_.Split(text, room));
  }
  for (const std::string_view piece : pieces) {
    if (piece.size() / longest_piece_bytes_ > room) return TooMany(out.limits.max_tokens);
    MOE_RETURN_IF_ERROR(EncodePiece(piece, out));
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodeRaw(std::string_view raw, const EncodeOptions& options, Encoding& out) const {
  const std::string normalized = normalizer_.empty() ? std::string() : normalizer_.Apply(raw);
  const std::string_view text = normalizer_.empty() ? raw : std::string_view(normalized);
  if (!options.parse_special_tokens) return EncodePlain(text, options.at_start, out);
  std::vector<Segment> segments;
  normalized_matcher_.Split(text, &segments, out.limits.max_tokens);
  for (const Segment& segment : segments) {
    if (segment.id == AddedTokenMatcher::kPlainText) {
      const bool at_start = options.at_start && segment.text.data() == text.data();
      MOE_RETURN_IF_ERROR(EncodePlain(segment.text, at_start, out));
    } else {
      out.ids.push_back(segment.id);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view utf8, const EncodeOptions& options,
                                                       const EncodeLimits& limits) const {
  if (const auto offset = FindInvalidUtf8(utf8)) {
    return absl::InvalidArgumentError(Concat("the text is not valid UTF-8 at byte ", *offset));
  }
  Encoding out = {limits};
  if (options.add_special_tokens) out.ids = prefix_;
  std::vector<Segment> segments;
  if (options.parse_special_tokens) {
    raw_matcher_.Split(utf8, &segments, limits.max_tokens);
  } else if (!utf8.empty()) {
    segments.push_back({utf8, AddedTokenMatcher::kPlainText});
  }
  for (const Segment& segment : segments) {
    if (segment.id == AddedTokenMatcher::kPlainText) {
      EncodeOptions part = options;
      part.at_start = options.at_start && segment.text.data() == utf8.data();
      MOE_RETURN_IF_ERROR(EncodeRaw(segment.text, part, out));
    } else {
      out.ids.push_back(segment.id);
    }
    if (out.ids.size() > limits.max_tokens) return TooMany(limits.max_tokens);
  }
  if (options.add_special_tokens) out.ids.insert(out.ids.end(), suffix_.begin(), suffix_.end());
  if (out.ids.size() > limits.max_tokens) return TooMany(limits.max_tokens);
  return std::move(out.ids);
}

Utf8Assembler Tokenizer::NewAssembler() const {
  return Utf8Assembler(spelling_ == Spelling::kText ? Utf8Repair::kByte : Utf8Repair::kSubpart, stripped_spaces_);
}

std::string Tokenizer::DecodeBytes(int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? std::string() : found->second.bytes;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  Utf8Assembler assembler = NewAssembler();
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
