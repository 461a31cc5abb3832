#include "common/checkpoint/gguf/gguf_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "common/checkpoint/checkpoint.h"
#include "common/text/concat.h"
#include "common/text/json/quoted.h"
#include "common/text/utf8.h"

namespace moestro::checkpoint {
namespace {

constexpr std::string_view kScores = "tokenizer.ggml.scores";

// Published vocabularies have 32,000 to 200,000 tokens.
constexpr size_t kMaxTokens = size_t{1} << 20;
constexpr size_t kMaxMerges = 2 * kMaxTokens;  // published: up to 450,000, several for a token
// The longest published token has 256 bytes here. The cost of finding merges grows with the square of the length.
constexpr size_t kMaxTokenBytes = 2048;

std::string Entry(size_t index, std::string_view text) { return text::Concat("[", index, "] ", text::Quoted(text)); }

absl::Status CheckToken(const GgufMetadata& metadata, size_t id, const std::string& text, int64_t type, int64_t rows) {
  if (type < static_cast<int64_t>(GgufTokenType::kNormal) || type > static_cast<int64_t>(GgufTokenType::kByte)) {
    return metadata.Wrong(kGgufTokenTypes, text::Concat("[", id, "] is ", type, ", not from 1 to 6"));
  }
  if (text.size() > kMaxTokenBytes) {
    return metadata.Wrong(kGgufTokens,
                          text::Concat(Entry(id, text), " has ", text.size(), " bytes, more than ", kMaxTokenBytes));
  }
  if (text::FindInvalidUtf8(text)) {
    return metadata.Wrong(kGgufTokens, text::Concat(Entry(id, text), " is not UTF-8", kPutTokenizerBeside));
  }
  if (static_cast<int64_t>(id) >= rows) {
    return metadata.Wrong(kGgufTokens,
                          text::Concat(Entry(id, text), ": the embedding has rows for ", rows, " tokens only"));
  }
  return absl::OkStatus();
}

// Of a merge: the bytes that it takes in a tokenizer.json, beside its text.
constexpr size_t kMergeBytes = 4;

struct ScoredMerge {
  float score;
  int32_t result;
  GgufMerge parts;
};

}  // namespace

absl::StatusOr<GgufVocabulary> ReadGgufVocabulary(const GgufMetadata& metadata, int64_t rows) {
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string>* const texts, metadata.Texts(kGgufTokens));
  if (texts->empty() || texts->size() > kMaxTokens) {
    return metadata.Wrong(kGgufTokens, text::Concat(texts->size(), " tokens: must be 1 to ", kMaxTokens));
  }
  if (!metadata.Has(kGgufTokenTypes)) {
    return metadata.Wrong(kGgufTokenTypes,
                          text::Concat("missing, so control tokens are not known", kPutTokenizerBeside));
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<int64_t>* const types, metadata.Integers(kGgufTokenTypes));
  if (types->size() != texts->size()) {
    return metadata.Wrong(kGgufTokenTypes,
                          text::Concat("has ", types->size(), " entries, but there are ", texts->size(), " tokens"));
  }
  GgufVocabulary vocabulary;
  vocabulary.tokens.resize(texts->size());
  vocabulary.ids.reserve(texts->size());
  for (size_t id = 0; id < texts->size(); ++id) {
    const std::string& text = (*texts)[id];
    const int64_t type = (*types)[id];
    if (text.empty() || type == static_cast<int64_t>(GgufTokenType::kUnused)) continue;
    MOE_RETURN_IF_ERROR(CheckToken(metadata, id, text, type, rows));
    const auto [other, is_new] = vocabulary.ids.try_emplace(text, static_cast<int32_t>(id));
    if (!is_new) {
      return metadata.Wrong(kGgufTokens,
                            text::Concat(Entry(id, text), " is [", other->second, "] too", kPutTokenizerBeside));
    }
    vocabulary.tokens[id] = {text, static_cast<GgufTokenType>(type)};
  }
  return vocabulary;
}

absl::StatusOr<std::vector<GgufMerge>> ReadGgufMerges(const GgufMetadata& metadata, const GgufVocabulary& vocabulary) {
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string>* const texts, metadata.Texts(kGgufMerges));
  if (texts->size() > kMaxMerges) {
    return metadata.Wrong(kGgufMerges, text::Concat(texts->size(), " merges: at most ", kMaxMerges));
  }
  std::vector<GgufMerge> merges;
  merges.reserve(texts->size());
  for (size_t i = 0; i < texts->size(); ++i) {
    const std::string_view merge = (*texts)[i];
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
      return metadata.Wrong(kGgufMerges,
                            text::Concat(Entry(i, merge), " must be two tokens with a space between them"));
    }
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    for (const std::string& part : {std::string(left), std::string(right), text::Concat(left, right)}) {
      if (vocabulary.ids.contains(part)) continue;
      return metadata.Wrong(kGgufMerges, text::Concat(Entry(i, merge), ": ", text::Quoted(part), " is not in ",
                                                      kGgufTokens, kPutTokenizerBeside));
    }
    merges.push_back({vocabulary.ids.at(left), vocabulary.ids.at(right)});
  }
  return merges;
}

absl::StatusOr<std::vector<GgufMerge>> MergesOfGgufScores(const GgufMetadata& metadata,
                                                          const GgufVocabulary& vocabulary) {
  MOE_ASSIGN_OR_RETURN(const std::vector<float>* const scores, metadata.Floats(kScores));
  if (scores->size() != vocabulary.tokens.size()) {
    return metadata.Wrong(
        kScores, text::Concat("has ", scores->size(), " entries, but there are ", vocabulary.tokens.size(), " tokens"));
  }
  const auto normal = [&](std::string_view text) {
    const auto found = vocabulary.ids.find(text);
    const bool is_normal =
        found != vocabulary.ids.end() && vocabulary.tokens[found->second].type == GgufTokenType::kNormal;
    return is_normal ? found->second : -1;
  };
  std::vector<ScoredMerge> scored;
  size_t bytes = 0;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const GgufToken& token = vocabulary.tokens[id];
    if (token.text.empty() || token.type != GgufTokenType::kNormal) continue;
    const float score = (*scores)[id];
    if (!std::isfinite(score)) return metadata.Wrong(kScores, text::Concat("[", id, "] is not a finite number"));
    for (size_t cut = 1; cut < token.text.size(); ++cut) {
      const GgufMerge parts = {normal(token.text.substr(0, cut)), normal(token.text.substr(cut))};
      if (parts.left < 0 || parts.right < 0) continue;
      scored.push_back({score, static_cast<int32_t>(id), parts});
      bytes += token.text.size() + kMergeBytes;
    }
    if (bytes > static_cast<size_t>(kMaxDocumentsBytes)) {
      return metadata.Wrong(kGgufTokens, text::Concat("their merges have more than ", kMaxDocumentsBytes, " bytes"));
    }
  }
  // Some converters write one score for all, as a placeholder.
  const auto [worst, best] = std::ranges::minmax_element(scored, {}, &ScoredMerge::score);
  if (!scored.empty() && worst->score == best->score && scored.front().result != scored.back().result) {
    return metadata.Wrong(kScores,
                          text::Concat("all the same, so the order of merges is not known", kPutTokenizerBeside));
  }
  std::ranges::sort(scored, {}, [](const ScoredMerge& merge) {
    return std::tuple(-merge.score, merge.result, merge.parts.left, merge.parts.right);
  });
  std::vector<GgufMerge> merges;
  merges.reserve(scored.size());
  for (const ScoredMerge& merge : scored) merges.push_back(merge.parts);
  return merges;
}

}  // namespace moestro::checkpoint
