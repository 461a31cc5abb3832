#include "common/experts/synthetic_trace.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/experts/routing_statistics.h"
#include "common/model/moe/gating.h"

namespace moestro::experts {
namespace {

constexpr int64_t kMaxBiases = 1 << 28;  // numbers of all sequences: 1 GB
constexpr double kMaxPopularity = 8;     // the most popular of 256 experts is then chosen by every token
constexpr int kHalvings = 12;            // of a fit's range
constexpr int kFits = 2;

// In (0, 1).
double Uniform(uint64_t word) { return (static_cast<double>(word >> 11) + 0.5) * 0x1p-53; }

// The i-th normal variable (Box and Muller).
float Normal(const RandomWords& words, uint64_t i) {
  const double radius = std::sqrt(-2 * std::log(Uniform(words[2 * i])));
  return static_cast<float>(radius * std::cos(2 * std::numbers::pi * Uniform(words[2 * i + 1])));
}

weights::ModelSpec RouterOf(const SyntheticRouting& routing) {
  weights::ModelSpec spec;
  spec.num_experts = routing.experts;
  spec.experts_per_token = routing.per_token;
  spec.num_expert_groups = spec.experts_topk_groups = 1;
  spec.softmax_router = 1;
  spec.norm_topk_prob = 1;
  spec.routed_scaling_factor = 1;
  return spec;
}

model::RoutingTraceModel ModelOf(const SyntheticRouting& routing) {
  return {.fingerprint = "synthetic",
          .moe_layers = routing.layers,
          .num_experts = routing.experts,
          .experts_per_token = routing.per_token,
          .scores_per_token = std::min(routing.per_token, routing.experts - routing.per_token),
          .predicted_layers = routing.predicted_layers};
}

}  // namespace

absl::Status CheckRouting(const SyntheticRouting& routing) {
  const auto check = [](const char* what, double value, double least, double most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat("%s: %g, expected %g to %g", what, value, least, most));
  };
  const auto of = [](int64_t value) { return static_cast<double>(value); };
  MOE_RETURN_IF_ERROR(model::CheckTraceModel(ModelOf(routing)));
  MOE_RETURN_IF_ERROR(check("popularity", routing.popularity, 0, kMaxPopularity));
  MOE_RETURN_IF_ERROR(check("drift", routing.drift, 0, 1));
  MOE_RETURN_IF_ERROR(check("sequence bias", routing.bias, 0, kMaxPopularity));
  MOE_RETURN_IF_ERROR(check("prediction error", routing.prediction_error, 0, 1e6));
  MOE_RETURN_IF_ERROR(check("sequences", of(routing.sequences), 1, model::kMaxPassTokens));
  MOE_RETURN_IF_ERROR(check("tokens", of(routing.tokens), 1, 1 << 20));
  MOE_RETURN_IF_ERROR(check("prompt tokens", of(routing.prompt_tokens), 0, model::kMaxPassTokens));
  return check("sequences * layers * experts", of(routing.sequences) * of(routing.layers) * of(routing.experts), 1,
               kMaxBiases);
}

SyntheticTrace::SyntheticTrace(const SyntheticRouting& routing)
    : routing_(routing),
      spec_(RouterOf(routing)),
      model_(ModelOf(routing)),
      noise_(routing.seed, "noise"),
      errors_(routing.seed, "errors"),
      popularity_(static_cast<size_t>(routing.layers * routing.experts)),
      bias_(popularity_.size() * static_cast<size_t>(routing.sequences)),
      logits_(static_cast<size_t>(routing.experts)),
      predicted_logits_(logits_.size()),
      chosen_(static_cast<size_t>(routing.per_token)),
      next_(static_cast<size_t>(model_.scores_per_token)) {
  const RandomWords popularity(routing.seed, "popularity"), bias(routing.seed, "bias");
  for (size_t i = 0; i < popularity_.size(); ++i) popularity_[i] = Normal(popularity, i);
  for (size_t i = 0; i < bias_.size(); ++i) bias_[i] = Normal(bias, i);
}

void SyntheticTrace::Drift() {
  const RandomWords drift(routing_.seed, "drift");
  const auto stays = static_cast<float>(std::sqrt(1 - routing_.drift * routing_.drift));
  const uint64_t begin = static_cast<uint64_t>(pass_) * popularity_.size();
  for (size_t i = 0; i < popularity_.size(); ++i) {
    popularity_[i] = stays * popularity_[i] + static_cast<float>(routing_.drift) * Normal(drift, begin + i);
  }
}

bool SyntheticTrace::Next(model::RoutingStep& step) {
  if (pass_ == passes()) return false;
  step = {};
  const int64_t generated = pass_ - prompts();
  if (generated > 0) Drift();
  for (int64_t i = 0; i < (generated < 0 ? routing_.prompt_tokens : routing_.sequences); ++i) {
    const int64_t sequence = generated < 0 ? pass_ : i;
    const int64_t position = generated < 0 ? i : routing_.prompt_tokens + generated;
    step.tokens.push_back({static_cast<uint32_t>(sequence), static_cast<uint32_t>(position), generated < 0});
    Choose(sequence, step);
  }
  ++pass_;
  return true;
}

void SyntheticTrace::Choose(int64_t sequence, model::RoutingStep& step) {
  const auto experts = static_cast<size_t>(routing_.experts);
  for (size_t layer = 0; layer < static_cast<size_t>(routing_.layers); ++layer) {
    const float* const popularity = popularity_.data() + layer * experts;
    const float* const bias = bias_.data() + (static_cast<size_t>(sequence * routing_.layers) + layer) * experts;
    for (size_t e = 0; e < experts; ++e) {
      const double noise = -std::log(-std::log(Uniform(noise_[drawn_++])));
      logits_[e] = static_cast<float>(routing_.popularity * popularity[e] + routing_.bias * bias[e] + noise);
    }
    MOE_CHECK(model::ChooseExperts(spec_, logits_, {}, chosen_).ok());  // no logit is NaN
    model::NextExperts(spec_, logits_, {}, chosen_, next_);
    step.choices.insert(step.choices.end(), chosen_.begin(), chosen_.end());
    step.others.insert(step.others.end(), next_.begin(), next_.end());
    Predict(static_cast<int64_t>(layer), step);
  }
}

void SyntheticTrace::Predict(int64_t moe_layer, model::RoutingStep& step) {
  for (int64_t ahead = 1; ahead <= model_.predicted_layers; ++ahead) {
    const size_t set = step.predicted.size();
    step.predicted.resize(set + static_cast<size_t>(model_.set_bytes()));
    if (ahead > moe_layer) continue;
    const double deviation = routing_.prediction_error * std::sqrt(static_cast<double>(ahead));
    for (size_t e = 0; e < logits_.size(); ++e) {
      predicted_logits_[e] = logits_[e] + static_cast<float>(deviation * Normal(errors_, drawn_errors_++));
    }
    MOE_CHECK(model::ChooseExperts(spec_, predicted_logits_, {}, chosen_).ok());
    for (const model::ExpertChoice& choice : chosen_) {
      step.predicted[set + static_cast<size_t>(choice.expert / 8)] |= static_cast<uint8_t>(1 << (choice.expert % 8));
    }
  }
}

absl::StatusOr<RoutingFit> FitRouting(SyntheticRouting like, double cold_share, double accuracy,
                                      const std::function<void(double done)>& progress) {
  like.prompt_tokens = 0;
  int runs = 0;
  const auto measure = [&](double popularity, double drift) {
    progress(static_cast<double>(runs++) / (kFits * (2 * kHalvings + 1) + 2));
    like.popularity = popularity;
    like.drift = drift;
    SyntheticTrace trace(like);
    RoutingStatistics statistics(trace.model());
    model::RoutingStep step;
    while (trace.Next(step)) statistics.Add(step);
    return RoutingFit{popularity, drift, statistics.ColdShare(), statistics.AverageAccuracy()};
  };
  // Both fall: the cold share with the popularity's deviation, the accuracy with the drift.
  const auto halve = [](double most, double wanted, const std::function<double(double)>& at) {
    double least = 0;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (least + most) / 2;
      (at(middle) > wanted ? least : most) = middle;
    }
    return (least + most) / 2;
  };
  const RoutingFit alike = measure(0, 0);
  if (alike.cold_share < cold_share) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the coldest 70 %% of the experts get %.3f of the choices when all are alike, wanted %.3f",
                        alike.cold_share, cold_share));
  }
  // The skew of a few layers depends on how many draws of popularity the passes see, so each is fitted twice.
  double popularity = 0, drift = 1;
  for (int i = 0; i < kFits; ++i) {
    popularity = halve(kMaxPopularity, cold_share, [&](double middle) { return measure(middle, drift).cold_share; });
    const RoutingFit still = measure(popularity, 0);
    if (still.accuracy < accuracy) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "without drift %.3f of the experts are as predicted, wanted %.3f: more sequences make loads surer",
          still.accuracy, accuracy));
    }
    drift = halve(1, accuracy, [&](double middle) { return measure(popularity, middle).accuracy; });
  }
  return measure(popularity, drift);
}

}  // namespace moestro::experts
