#include "common/model/moe/gating.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace moestro::model {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr float kMinWeightSum = 1e-20f;  // keeps the division defined when every score underflows to zero

// Ids of the `count` largest values; equal values: lower id first. Order of the result: best first.
std::vector<int32_t> LargestIds(std::span<const float> values, int64_t count) {
  std::vector<int32_t> ids(values.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [values](int32_t a, int32_t b) {
    return values[a] > values[b] || (values[a] == values[b] && a < b);
  });
  ids.resize(count);
  return ids;
}

// A group of one expert counts that expert only.
float GroupScore(const weights::ModelSpec& spec, std::span<const float> values) {
  float first = kMasked;
  float second = kMasked;
  for (const float value : values) {
    if (value > first) {
      second = first;
      first = value;
    } else if (value > second) {
      second = value;
    }
  }
  return spec.largest_of_group != 0 || values.size() == 1 ? first : first + second;
}

void MaskLosingGroups(const weights::ModelSpec& spec, std::span<float> biased) {
  const int64_t size = spec.num_experts / spec.num_expert_groups;
  std::vector<float> scores(spec.num_expert_groups);
  for (size_t group = 0; group < scores.size(); ++group) {
    scores[group] = GroupScore(spec, biased.subspan(group * size, size));
  }
  std::vector<bool> kept(scores.size(), false);
  for (const int32_t group : LargestIds(scores, spec.experts_topk_groups)) kept[group] = true;
  for (size_t group = 0; group < scores.size(); ++group) {
    if (!kept[group]) std::ranges::fill(biased.subspan(group * size, size), kMasked);
  }
}

void Softmax(std::span<float> values) {
  const float largest = std::ranges::max(values);
  float sum = 0;
  for (float& value : values) sum += value = std::exp(value - largest);
  for (float& value : values) value /= sum;
}

std::vector<float> Scores(const weights::ModelSpec& spec, std::span<const float> logits) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (spec.softmax_router != 0) {
    Softmax(scores);
  } else {
    std::ranges::transform(scores, scores.begin(), Sigmoid);
  }
  return scores;
}

// What scores are divided by to be weights, where these ids are chosen.
float Divisor(const weights::ModelSpec& spec, const std::vector<float>& scores, std::span<const int32_t> ids) {
  float sum = 0;
  for (const int32_t id : ids) sum += scores[id];
  return spec.norm_topk_prob != 0 ? sum + kMinWeightSum : 1.0f;
}

}  // namespace

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

absl::Status ChooseExperts(const weights::ModelSpec& spec, std::span<const float> logits, std::span<const float> bias,
                           std::span<ExpertChoice> chosen) {
  const std::vector<float> scores = Scores(spec, logits);
  std::vector<float> biased = scores;
  for (size_t e = 0; e < biased.size(); ++e) {
    if (!bias.empty()) biased[e] += bias[e];
    if (std::isnan(biased[e])) return absl::InternalError(absl::StrCat("router score of expert ", e, " is NaN"));
  }
  if (spec.num_expert_groups > 1) MaskLosingGroups(spec, biased);
  std::vector<int32_t> ids = LargestIds(biased, static_cast<int64_t>(chosen.size()));
  std::ranges::sort(ids);

  const float divisor = Divisor(spec, scores, ids);
  const auto scale = static_cast<float>(spec.routed_scaling_factor);
  for (size_t i = 0; i < ids.size(); ++i) chosen[i] = {ids[i], scores[ids[i]] / divisor * scale};
  return absl::OkStatus();
}

void NextExperts(const weights::ModelSpec& spec, std::span<const float> logits, std::span<const float> bias,
                 std::span<const ExpertChoice> chosen, std::span<ExpertChoice> next) {
  const std::vector<float> scores = Scores(spec, logits);
  std::vector<float> biased = scores;
  for (size_t e = 0; e < biased.size(); ++e) {
    if (!bias.empty()) biased[e] += bias[e];
    if (std::isnan(biased[e])) biased[e] = kMasked;
  }
  std::vector<int32_t> ids;
  for (const ExpertChoice& choice : chosen) ids.push_back(choice.expert);
  const float divisor = Divisor(spec, scores, ids);
  // The chosen ones come first, whatever their group lets others have.
  for (const int32_t id : ids) biased[id] = std::numeric_limits<float>::infinity();
  ids = LargestIds(biased, static_cast<int64_t>(chosen.size() + next.size()));
  ids.erase(ids.begin(), ids.begin() + std::ssize(chosen));
  std::ranges::sort(ids);
  const auto scale = static_cast<float>(spec.routed_scaling_factor);
  for (size_t i = 0; i < ids.size(); ++i) {
    const float weight = scores[ids[i]] / divisor * scale;
    next[i] = {ids[i], std::isnan(weight) ? 0.0f : weight};
  }
}

}  // namespace moestro::model
