#include "common/text/bpe_trainer.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <queue>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "common/base/status.h"
#include "common/text/byte_level.h"
#include "common/text/concat.h"
#include "common/text/deepseek_patterns.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/utf8.h"

namespace moestro {
namespace {

// A pair that occurs once saves nothing.
constexpr int64_t kMinCount = 2;

using Pair = std::pair<int32_t, int32_t>;

struct Word {
  std::vector<int32_t> ids;
  int64_t count;  // how often it occurs in the corpus
};

struct PairUse {
  int64_t count = 0;
  std::vector<int32_t> words;  // where it occurs or once did; may repeat
};

struct Candidate {
  int64_t count;
  Pair pair;
};

class Trainer {
 public:
  explicit Trainer(const std::map<std::string_view, int64_t>& pieces) : candidates_(Less{&tokens_}) {
    for (int byte = 0; byte < 256; ++byte) AddToken(std::string(1, static_cast<char>(byte)));
    for (const auto& [piece, count] : pieces) {
      Word word{{}, count};
      for (const char byte : piece) word.ids.push_back(static_cast<unsigned char>(byte));
      words_.push_back(std::move(word));
    }
    for (size_t word = 0; word < words_.size(); ++word) Count(static_cast<int32_t>(word), +1);
    for (const auto& [pair, use] : uses_) candidates_.push({use.count, pair});
  }

  TrainedBpe Run(int merges) {
    TrainedBpe trained;
    while (static_cast<int>(trained.merges.size()) < merges && !candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      if (uses_[best.pair].count != best.count) continue;  // counted anew since
      if (best.count < kMinCount) break;
      const auto [left, right] = best.pair;
      trained.merges.emplace_back(SpellBytes(tokens_[left]), SpellBytes(tokens_[right]));
      Merge(best.pair, AddToken(tokens_[left] + tokens_[right]));
    }
    for (const std::string& token : tokens_) trained.tokens.push_back(SpellBytes(token));
    return trained;
  }

 private:
  // The top of the queue is the greatest: the highest count, then the smaller bytes.
  struct Less {
    const std::vector<std::string>* tokens;
    bool operator()(const Candidate& a, const Candidate& b) const {
      const auto bytes = [&](int32_t id) -> const std::string& { return (*tokens)[id]; };
      return std::forward_as_tuple(a.count, bytes(b.pair.first), bytes(b.pair.second)) <
             std::forward_as_tuple(b.count, bytes(a.pair.first), bytes(a.pair.second));
    }
  };

  int32_t AddToken(const std::string& bytes) {
    const auto [found, is_new] = ids_.try_emplace(bytes, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(bytes);
    return found->second;
  }

  // Adds (+1) or takes away (-1) the pairs of a word.
  void Count(int32_t index, int sign) {
    const Word& word = words_[index];
    for (size_t i = 0; i + 1 < word.ids.size(); ++i) {
      PairUse& use = uses_[{word.ids[i], word.ids[i + 1]}];
      use.count += sign * word.count;
      if (sign > 0) use.words.push_back(index);
    }
  }

  void Merge(Pair pair, int32_t result) {
    std::vector<int32_t> affected = std::move(uses_[pair].words);
    std::sort(affected.begin(), affected.end());
    affected.erase(std::unique(affected.begin(), affected.end()), affected.end());
    std::map<Pair, int64_t> before;  // the pairs whose counts may change
    const auto note_pairs = [&](const Word& word) {
      for (size_t i = 0; i + 1 < word.ids.size(); ++i) {
        const Pair key{word.ids[i], word.ids[i + 1]};
        before.try_emplace(key, uses_[key].count);
      }
    };
    for (const int32_t index : affected) {
      note_pairs(words_[index]);
      Count(index, -1);
      Replace(pair, result, &words_[index].ids);
      note_pairs(words_[index]);
      Count(index, +1);
    }
    for (const auto& [changed, count] : before) {
      const int64_t now = uses_[changed].count;
      if (now != count) candidates_.push({now, changed});
    }
  }

  static void Replace(Pair pair, int32_t result, std::vector<int32_t>* ids) {
    size_t kept = 0;
    for (size_t i = 0; i < ids->size(); ++i, ++kept) {
      const bool here = i + 1 < ids->size() && (*ids)[i] == pair.first && (*ids)[i + 1] == pair.second;
      (*ids)[kept] = here ? result : (*ids)[i];
      if (here) ++i;
    }
    ids->resize(kept);
  }

  std::vector<std::string> tokens_;  // bytes by id
  absl::flat_hash_map<std::string, int32_t> ids_;
  std::vector<Word> words_;
  absl::flat_hash_map<Pair, PairUse> uses_;
  std::priority_queue<Candidate, std::vector<Candidate>, Less> candidates_;
};

}  // namespace

absl::StatusOr<TrainedBpe> TrainBpe(std::string_view corpus, int merges) {
  if (merges < 0) return absl::InvalidArgumentError(Concat("cannot train ", merges, " merges"));
  if (const auto offset = FindInvalidUtf8(corpus)) {
    return absl::InvalidArgumentError(Concat("the corpus is not valid UTF-8 at byte ", *offset));
  }
  MOE_ASSIGN_OR_RETURN(const PreTokenizer pre_tokenizer, PreTokenizer::Create(kDeepSeekV3Patterns));
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string_view> pieces, pre_tokenizer.Split(corpus));
  std::map<std::string_view, int64_t> counts;
  for (const std::string_view piece : pieces) ++counts[piece];
  return Trainer(counts).Run(merges);
}

}  // namespace moestro
