#include "common/checkpoint/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/text/byte_level.h"
#include "common/text/concat.h"
#include "common/text/json/quoted.h"
#include "common/text/tiktoken.h"
#include "common/text/tokenizer_spec.h"

namespace moestro::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::string_view kAddSpacePrefix = "tokenizer.ggml.add_space_prefix";
constexpr std::string_view kRemoveExtraSpaces = "tokenizer.ggml.remove_extra_whitespaces";

// The patterns that the publishers' tokenizer.json files split text by, each applied to the pieces of the one before.
constexpr std::string_view kQwen2[] = {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+)"
                                       R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kCl100k[] = {text::kCl100kPattern};
constexpr std::string_view kO200k[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Digits in threes, runs of Chinese and Japanese, then words and punctuation.
constexpr std::string_view kDeepSeekV3[] = {
    R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)re"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// The letters are those of an old version of Unicode that have upper and lower case, without some blocks. So no
// property says what they are.
constexpr std::string_view kDeepSeekV2[] = {
    R"([\r\n])",
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5})"
    R"(\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD})"
    R"(\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15})"
    R"(\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D})"
    R"(\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB})"
    R"(\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D})"
    R"(\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E})"
    R"(\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06})"
    R"(\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB})"
    R"(\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)",
    R"(\p{N})"};

constexpr std::string_view kTekken[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kSeedCoder[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)"};
constexpr std::string_view kDeepSeekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                               R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", R"(\p{N})"};
// Hangul; Chinese and Japanese punctuation; Bopomofo; Chinese and Japanese. Then words, as GPT-4o has them.
constexpr std::string_view kYoutu[] = {
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+)"
    R"(|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+)"
    R"(|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kEachDigit[] = {R"(\p{N})"};

struct PreTokenizer {
  std::string_view name;  // tokenizer.ggml.pre
  std::span<const std::string_view> patterns = {};
  bool then_gpt2 = false;      // ByteLevel splits what the patterns left by GPT-2's
  bool nfc = false;            // text is normalized to Form C
  bool ignore_merges = false;  // a piece that is a token is not merged from its parts
  bool begins_with_bos = false;
};

// The names that files of the served architectures carry. Several models share a name, and several names a way.
// Tokenizers that were tiktoken's ignore merges, as tiktoken does.
constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "chatglm-bpe", .patterns = kCl100k, .ignore_merges = true},
    {.name = "codeshell", .patterns = kEachDigit, .then_gpt2 = true},
    {.name = "command-r", .patterns = kEachDigit, .then_gpt2 = true},
    {.name = "dbrx", .patterns = kCl100k, .ignore_merges = true},
    {.name = "deepseek-coder", .patterns = kDeepSeekCoder},
    {.name = "deepseek-llm", .patterns = kDeepSeekV2},
    {.name = "deepseek-r1-qwen", .patterns = kQwen2},
    {.name = "deepseek-v3", .patterns = kDeepSeekV3},
    {.name = "falcon3", .patterns = kCl100k, .ignore_merges = true, .begins_with_bos = true},
    {.name = "gigachat", .then_gpt2 = true},
    {.name = "glm4", .patterns = kCl100k, .ignore_merges = true},
    {.name = "gpt-2", .then_gpt2 = true},
    {.name = "gpt-4o", .patterns = kO200k, .ignore_merges = true},
    {.name = "joyai-llm", .patterns = kDeepSeekV3},
    {.name = "kanana2", .patterns = kO200k, .ignore_merges = true},
    {.name = "llama-bpe", .patterns = kCl100k, .ignore_merges = true, .begins_with_bos = true},
    {.name = "llama-v3", .patterns = kCl100k, .ignore_merges = true, .begins_with_bos = true},
    {.name = "llama3", .patterns = kCl100k, .ignore_merges = true, .begins_with_bos = true},
    {.name = "megrez", .patterns = kQwen2},
    {.name = "mellum", .then_gpt2 = true},
    {.name = "mellum2", .patterns = kEachDigit, .then_gpt2 = true},
    {.name = "midm-2.0", .patterns = kCl100k, .ignore_merges = true, .begins_with_bos = true},
    {.name = "minerva-7b", .patterns = kEachDigit, .then_gpt2 = true},
    {.name = "minimax-m2", .patterns = kO200k},
    {.name = "pixtral", .patterns = kCl100k, .ignore_merges = true, .begins_with_bos = true},
    {.name = "qwen2", .patterns = kQwen2, .nfc = true},
    {.name = "refact", .patterns = kEachDigit, .then_gpt2 = true},
    {.name = "seed-coder", .patterns = kSeedCoder},
    {.name = "smaug-bpe", .patterns = kCl100k},
    {.name = "smollm", .patterns = kEachDigit, .then_gpt2 = true},
    {.name = "solar-open", .patterns = kQwen2},
    {.name = "starcoder", .patterns = kEachDigit, .then_gpt2 = true},
    {.name = "tekken", .patterns = kTekken, .ignore_merges = true, .begins_with_bos = true},
    {.name = "trillion", .then_gpt2 = true},
    {.name = "youtu", .patterns = kYoutu, .ignore_merges = true},
};
// Published as ranks, which say more than the merges of the file.
constexpr std::string_view kRanksPre = "kimi-k2";
constexpr std::string_view kRanksClass = "TikTokenTokenizer";

absl::StatusOr<PreTokenizer> FindPreTokenizer(const GgufMetadata& metadata, const std::string& name) {
  const auto* const found = std::ranges::find(kPreTokenizers, name, &PreTokenizer::name);
  if (found != std::end(kPreTokenizers)) return *found;
  return metadata.NotSupported(
      kPre, text::Concat(text::Quoted(name), ": its way to split text is not known here", kPutTokenizerBeside));
}

// A flag with a default. INVALID_ARGUMENT for another type.
absl::StatusOr<bool> FlagOr(const GgufMetadata& metadata, std::string_view key, bool fallback) {
  return metadata.Has(key) ? metadata.Flag(key) : fallback;
}

// The fields that tokenizers of both kinds share.
json Document(const GgufVocabulary& vocabulary, const std::vector<GgufMerge>& merges) {
  std::vector<bool> merged(vocabulary.tokens.size());
  json merge_texts = json::array();
  for (const auto& [left, right] : merges) {
    const std::string_view texts[2] = {vocabulary.tokens[left].text, vocabulary.tokens[right].text};
    for (const int32_t id : {left, right, vocabulary.ids.at(text::Concat(texts[0], texts[1]))}) merged[id] = true;
    merge_texts.push_back(text::Concat(texts[0], " ", texts[1]));
  }
  json vocab = json::object();
  json added = json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const GgufToken& token = vocabulary.tokens[id];
    if (token.text.empty()) continue;
    // An added token is no piece of plain text, unless a merge makes it one.
    if (!token.added() || merged[id]) vocab[std::string(token.text)] = id;
    if (!token.added()) continue;
    added.push_back({{"id", id},
                     {"content", std::string(token.text)},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", token.special()}});
  }
  json model = {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merge_texts)}};
  return {{"version", "1.0"},          {"truncation", nullptr},
          {"padding", nullptr},        {"added_tokens", std::move(added)},
          {"normalizer", nullptr},     {"pre_tokenizer", nullptr},
          {"model", std::move(model)}, {"post_processor", nullptr}};
}

absl::StatusOr<GgufTokenizer> ByteLevel(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                                        const PreTokenizer& pre) {
  MOE_ASSIGN_OR_RETURN(const std::vector<GgufMerge> merges, ReadGgufMerges(metadata, vocabulary));
  json document = Document(vocabulary, merges);
  document["model"]["ignore_merges"] = pre.ignore_merges;
  if (pre.nfc) document["normalizer"] = {{"type", "NFC"}};
  json steps = json::array();
  for (const std::string_view pattern : pre.patterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", pre.then_gpt2}};
  steps.push_back(byte_level);
  document["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  document["decoder"] = byte_level;
  return GgufTokenizer{.tokenizer_json = document.dump(), .begins_with_bos = pre.begins_with_bos};
}

// Ranks are ids, so the plain tokens come first.
absl::StatusOr<GgufTokenizer> Ranks(const GgufMetadata& metadata, const GgufVocabulary& vocabulary) {
  GgufTokenizer tokenizer = {.tokenizer_class = kRanksClass};
  bool ended = false;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const GgufToken& token = vocabulary.tokens[id];
    if (token.type != GgufTokenType::kNormal) {
      ended = true;
      continue;
    }
    const std::optional<std::string> bytes = text::UnspellBytes(token.text);
    if (ended || !bytes.has_value()) {
      return metadata.Wrong(kGgufTokens,
                            text::Concat("[", id, "] ", text::Quoted(token.text),
                                         ended ? ": a normal token after one that is not" : " does not spell bytes",
                                         kPutTokenizerBeside));
    }
    tokenizer.tiktoken_ranks += text::Concat(absl::Base64Escape(*bytes), " ", id, "\n");
  }
  return tokenizer;
}

absl::Status CheckByteTokens(const GgufMetadata& metadata, const GgufVocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = text::ByteTokenSpelling(static_cast<unsigned char>(byte));
    if (vocabulary.ids.contains(spelling)) continue;
    return metadata.NotSupported(
        kGgufTokens, text::Concat("no token ", text::Quoted(spelling),
                                  "; only vocabularies with a token for every byte ", "can spell all text"));
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufTokenizer> SentencePiece(const GgufMetadata& metadata, const GgufVocabulary& vocabulary) {
  MOE_RETURN_IF_ERROR(CheckByteTokens(metadata, vocabulary));
  MOE_ASSIGN_OR_RETURN(const bool removes, FlagOr(metadata, kRemoveExtraSpaces, false));
  if (removes) {
    return metadata.NotSupported(kRemoveExtraSpaces, text::Concat("true is not supported", kPutTokenizerBeside));
  }
  MOE_ASSIGN_OR_RETURN(const bool prefix, FlagOr(metadata, kAddSpacePrefix, true));
  // A file that was made from a tokenizer.json has its merges. Its scores may be placeholders.
  MOE_ASSIGN_OR_RETURN(const std::vector<GgufMerge> merges, metadata.Has(kGgufMerges)
                                                                ? ReadGgufMerges(metadata, vocabulary)
                                                                : MergesOfGgufScores(metadata, vocabulary));
  json document = Document(vocabulary, merges);
  document["model"]["byte_fallback"] = true;
  json normalizers = json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", "▁"}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}});
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
  json steps = {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  document["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(steps)}};
  return GgufTokenizer{.tokenizer_json = document.dump(), .begins_with_bos = true};
}

}  // namespace

absl::StatusOr<GgufTokenizer> MakeGgufTokenizer(const GgufMetadata& metadata, const GgufVocabulary& vocabulary) {
  MOE_ASSIGN_OR_RETURN(const std::string* const model, metadata.Text(kModel));
  if (*model == "llama") return SentencePiece(metadata, vocabulary);
  if (*model != "gpt2") {
    return metadata.NotSupported(kModel, text::Concat(text::Quoted(*model), " is neither byte-level BPE (gpt2) nor ",
                                                      "SentencePiece BPE (llama)", kPutTokenizerBeside));
  }
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.tokens[id].type != GgufTokenType::kByte) continue;
    return metadata.Wrong(kGgufTokenTypes, text::Concat("[", id, "] is a byte, but ", kModel, " is 'gpt2'"));
  }
  if (!metadata.Has(kPre)) {
    return metadata.Wrong(kPre, text::Concat("missing, so the way to split text is not known", kPutTokenizerBeside));
  }
  MOE_ASSIGN_OR_RETURN(const std::string* const pre, metadata.Text(kPre));
  if (*pre == kRanksPre) return Ranks(metadata, vocabulary);
  MOE_ASSIGN_OR_RETURN(const PreTokenizer pre_tokenizer, FindPreTokenizer(metadata, *pre));
  return ByteLevel(metadata, vocabulary, pre_tokenizer);
}

}  // namespace moestro::checkpoint
