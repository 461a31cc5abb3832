#include "common/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/vocabulary_sums.h"

namespace moestro::model {
namespace {

// SplitMix64's finaliser: every input bit changes every output bit with a probability close to one half.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Uniform in [0, 1) with 53 random bits. Counter-based: depends only on token `index` of the stream `seed`. The
// golden-ratio step keeps neighbouring seeds and indices apart (seed 0, index 0 included).
double UniformAt(uint64_t seed, uint64_t index) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15ull;
  const uint64_t bits = Mix(Mix(seed + kStep) + (index + 1) * kStep);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// log(sum(exp(logits))). REQUIRES a finite maximum.
double LogSumExp(std::span<const float> logits, float maximum) { return maximum + std::log(SumOfExp(logits, maximum)); }

bool MoreLikely(std::span<const float> logits, int32_t a, int32_t b) {
  return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

// Tokens with finite logits from the most to the least likely (ties: lower id first), sorted only as far as requested.
// A vocabulary is large, and a draw seldom looks beyond its first few tokens. `maximum`: of the logits.
class RankedTokens {
 public:
  RankedTokens(std::span<const float> logits, float maximum)
      : logits_(logits),
        near_(std::max(maximum - kNear, std::numeric_limits<float>::lowest())),
        size_(static_cast<size_t>(std::ranges::count_if(logits, [](float logit) { return logit > kImpossible; }))) {
    Collect([this](float logit) { return logit >= near_; });
  }

  size_t size() const { return size_; }

  // REQUIRES: rank < size().
  int32_t At(size_t rank) {
    // All that come now rank behind those that are there.
    if (rank >= ids_.size()) Collect([this](float logit) { return logit < near_ && logit > kImpossible; });
    while (rank >= sorted_) SortMore();
    return ids_[rank];
  }

 private:
  // Few tokens of a language model's distribution are so near to the most likely one. All others together, were they
  // 160,000, would have 2 % of its probability at temperature 1.
  static constexpr float kNear = 16;
  static constexpr float kImpossible = -std::numeric_limits<float>::infinity();

  // Without branches: which logits are wanted cannot be foreseen.
  template <typename Wanted>
  void Collect(Wanted wanted) {
    size_t end = ids_.size();
    ids_.resize(end + static_cast<size_t>(std::ranges::count_if(logits_, wanted)) + 1);
    for (size_t id = 0; id < logits_.size(); ++id) {
      ids_[end] = static_cast<int32_t>(id);
      end += static_cast<size_t>(wanted(logits_[id]));
    }
    ids_.resize(end);
  }

  void SortMore() {
    const size_t target = std::min(ids_.size(), std::max<size_t>(64, sorted_ * 8));
    std::partial_sort(ids_.begin() + sorted_, ids_.begin() + target, ids_.end(),
                      [this](int32_t a, int32_t b) { return MoreLikely(logits_, a, b); });
    sorted_ = target;
  }

  std::span<const float> logits_;
  float near_;
  size_t size_;
  std::vector<int32_t> ids_;
  size_t sorted_ = 0;
};

// The distribution over the ranked tokens at this temperature, cut by min_p and top_k, then by top_p of the remainder.
class Draw {
 public:
  Draw(std::span<const float> logits, float maximum, const Sampling& params)
      : logits_(logits),
        maximum_(maximum),
        temperature_(params.temperature),
        ranked_(logits, maximum),
        kept_(ranked_.size()) {
    if (params.top_k > 0 && static_cast<size_t>(params.top_k) < kept_) kept_ = static_cast<size_t>(params.top_k);
    if (params.min_p > 0) CutBelow(params.min_p);
    if (kept_ < ranked_.size()) {
      for (size_t rank = 0; rank < kept_; ++rank) mass_ += Weight(ranked_.At(rank));
    } else {
      mass_ = SumOfExp(logits, maximum, params.temperature);
    }
    if (params.top_p < 1) CutTo(mass_ * static_cast<double>(params.top_p));
  }

  // The first token in rank order at which the cumulative probability exceeds `uniform`. SumOfExp is rounded: where
  // `uniform` is near 1, its mass may be beyond all tokens together. Then the exact one decides, and not the end of the
  // list.
  int32_t Pick(double uniform) {
    for (int pass = 0; pass < 2; ++pass) {
      double cumulated = 0;
      for (size_t rank = 0; rank < kept_; ++rank) {
        const int32_t id = ranked_.At(rank);
        cumulated += Weight(id);
        if (cumulated > uniform * mass_) return id;
      }
      mass_ = cumulated;
    }
    return ranked_.At(kept_ - 1);
  }

 private:
  // Unnormalised probability; 0 for -inf.
  double Weight(int32_t id) const { return std::exp((static_cast<double>(logits_[id]) - maximum_) / temperature_); }

  // The most likely token has a weight of 1.
  void CutBelow(double weight) {
    for (size_t rank = 1; rank < kept_; ++rank) {
      if (Weight(ranked_.At(rank)) < weight) kept_ = rank;
    }
  }

  void CutTo(double wanted) {
    double cumulated = 0;
    for (size_t rank = 0; rank < kept_; ++rank) {
      cumulated += Weight(ranked_.At(rank));
      if (cumulated >= wanted) {
        kept_ = rank + 1;
        break;
      }
    }
    mass_ = cumulated;
  }

  std::span<const float> logits_;
  double maximum_;
  double temperature_;
  RankedTokens ranked_;
  size_t kept_;
  double mass_ = 0;  // sum of the weights of the kept tokens
};

// The id of the largest logit. INTERNAL if there is none, or if a logit is NaN or infinite.
absl::StatusOr<int32_t> MostLikely(std::span<const float> logits) {
  if (const std::optional<int32_t> largest = LargestLogit(logits)) return *largest;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id]) || logits[id] == std::numeric_limits<float>::infinity()) {
      return absl::InternalError(absl::StrCat("logit of token ", id, " is ", logits[id]));
    }
  }
  return absl::InternalError("no token has a finite logit");
}

// `best`: the most likely id.
int32_t Choose(std::span<const float> logits, int32_t best, const Sampling& params, uint64_t index) {
  if (params.temperature == 0) return best;
  return Draw(logits, logits[best], params).Pick(UniformAt(params.seed, index));
}

bool Adjusts(const Sampling& params) {
  return !params.logit_bias.empty() || params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
         params.presence_penalty != 0;
}

void Penalize(std::span<const int32_t> tokens, const Sampling& params, uint64_t index, std::span<float> logits) {
  if (params.repetition_penalty != 1) {
    std::vector<bool> seen(logits.size());
    for (const int32_t id : tokens) {
      if (seen[id]) continue;
      seen[id] = true;
      logits[id] = logits[id] > 0 ? logits[id] / params.repetition_penalty : logits[id] * params.repetition_penalty;
    }
  }
  if (params.frequency_penalty == 0 && params.presence_penalty == 0) return;
  std::vector<uint32_t> counts(logits.size());
  const std::span<const int32_t> generated = tokens.last(index);
  for (const int32_t id : generated) ++counts[id];
  for (const int32_t id : generated) {
    const uint32_t count = std::exchange(counts[id], 0);
    if (count == 0) continue;
    logits[id] -= params.frequency_penalty * static_cast<float>(count);
    logits[id] -= params.presence_penalty;
  }
}

// Last of all, so that nothing makes a masked token possible again.
void Mask(std::span<const uint32_t> mask, std::span<float> logits) {
  for (size_t id = 0; id < logits.size(); ++id) {
    if ((mask[id / 32] >> (id % 32) & 1) == 0) logits[id] = -std::numeric_limits<float>::infinity();
  }
}

std::vector<float> Adjusted(std::span<const float> logits, std::span<const int32_t> tokens, const Sampling& params,
                            uint64_t index, std::span<const uint32_t> mask) {
  std::vector<float> adjusted(logits.begin(), logits.end());
  for (const auto& [id, bias] : params.logit_bias) adjusted[id] += bias;
  Penalize(tokens, params, index, adjusted);
  if (!mask.empty()) Mask(mask, adjusted);
  return adjusted;
}

std::vector<TokenAlternative> Alternatives(std::span<const float> logits, float maximum, double normaliser,
                                           size_t top) {
  std::vector<TokenAlternative> alternatives;
  if (top == 0) return alternatives;
  RankedTokens ranked(logits, maximum);
  for (size_t rank = 0; rank < std::min(top, ranked.size()); ++rank) {
    const int32_t id = ranked.At(rank);
    alternatives.push_back({id, static_cast<float>(logits[id] - normaliser)});
  }
  return alternatives;
}

}  // namespace

absl::Status ValidateSampling(const Sampling& params, int64_t token_count) {
  if (!(params.temperature >= 0) || !std::isfinite(params.temperature)) {
    return absl::InvalidArgumentError(
        absl::StrCat("temperature is ", params.temperature, "; it must be 0 (greedy) or a positive number"));
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_p is ", params.top_p, "; it must be greater than 0 and at most 1"));
  }
  if (params.top_k < 0) {
    return absl::InvalidArgumentError(absl::StrCat("top_k is ", params.top_k, "; it must be 0 (off) or positive"));
  }
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("min_p is ", params.min_p, "; it must be 0 (off) to 1"));
  }
  if (!std::isfinite(params.presence_penalty) || !std::isfinite(params.frequency_penalty)) {
    return absl::InvalidArgumentError(absl::StrCat("presence_penalty is ", params.presence_penalty,
                                                   ", frequency_penalty ", params.frequency_penalty,
                                                   "; they must be numbers"));
  }
  if (!(params.repetition_penalty > 0) || !std::isfinite(params.repetition_penalty)) {
    return absl::InvalidArgumentError(
        absl::StrCat("repetition_penalty is ", params.repetition_penalty, "; it must be 1 (off) or a positive number"));
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (id >= 0 && id < token_count && std::isfinite(bias)) continue;
    return absl::InvalidArgumentError(absl::StrCat("logit_bias of token ", id, " is ", bias,
                                                   "; it must be a number for an id of 0 to ", token_count - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<Token> SampleNext(std::span<const float> logits, std::span<const int32_t> tokens, const Sampling& params,
                                 uint64_t index, std::span<const uint32_t> mask) {
  MOE_CHECK(mask.empty() || 32 * mask.size() >= logits.size());
  MOE_ASSIGN_OR_RETURN(const int32_t best, MostLikely(logits));
  int32_t id = 0;
  if (Adjusts(params) || !mask.empty()) {
    const std::vector<float> adjusted = Adjusted(logits, tokens, params, index, mask);
    MOE_ASSIGN_OR_RETURN(const int32_t best_adjusted, MostLikely(adjusted));
    id = Choose(adjusted, best_adjusted, params, index);
  } else {
    id = Choose(logits, best, params, index);
  }
  const double normaliser = LogSumExp(logits, logits[best]);
  Token token{id, static_cast<float>(logits[id] - normaliser)};
  if (params.top_logprobs > 0) token.top = Alternatives(logits, logits[best], normaliser, params.top_logprobs);
  return token;
}

LogprobResult ComputeLogprobs(std::span<const float> logits, int32_t id, int32_t top) {
  MOE_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size());
  const float maximum = *std::ranges::max_element(logits);
  const double normaliser = LogSumExp(logits, maximum);
  return {static_cast<float>(logits[id] - normaliser),
          Alternatives(logits, maximum, normaliser, static_cast<size_t>(std::max(top, 0)))};
}

}  // namespace moestro::model
