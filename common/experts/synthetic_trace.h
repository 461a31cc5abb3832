// Recordings that no model made: choices of experts with a wanted skew and a wanted change, for studies of caches,
// placements and predictors (TriMoE, section 5: traces of real traffic are not public).
//
// A router's logit of an expert is the sum of three normal variables and the noise whose largest values are a draw
// without replacement (Gumbel's):
//
//   popularity * g[layer, expert], which drifts from pass to pass: g <- sqrt(1 - drift^2) g + drift n
//   bias * b[sequence, layer, expert], which stays
//   noise of each token
//
// So an expert's popularity is log-normal of deviation `popularity`, at all times. The rest is a softmax router. What n
// layers before would have predicted is the choice by these logits with normal errors of deviation
// prediction_error * sqrt(n).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/random_bits.h"
#include "common/model/routing_trace.h"
#include "common/weights/model_spec.h"

namespace moestro::experts {

struct SyntheticRouting {
  int64_t layers = 58;  // DeepSeek-V3's
  int64_t experts = 256;
  int64_t per_token = 8;
  double popularity = 1;  // 0: all experts are alike
  double drift = 0.1;     // 0: popularity stays, 1: every pass has another one
  double bias = 0.5;      // 0: sequences are alike
  int64_t predicted_layers = 0;
  double prediction_error = 1;
  int64_t sequences = 256;  // decode together
  int64_t tokens = 64;      // that each generates
  int64_t prompt_tokens = 0;
  uint64_t seed = 1;
};

// INVALID_ARGUMENT names the field that is out of range.
absl::Status CheckRouting(const SyntheticRouting& routing);

// One pass for each prompt, then one for each generated token of all sequences. Equal arguments, equal passes.
class SyntheticTrace {  // not thread-safe
 public:
  // REQUIRES CheckRouting.
  explicit SyntheticTrace(const SyntheticRouting& routing);

  // With the scores of as many next-best experts as are chosen, as far as there are any.
  const model::RoutingTraceModel& model() const { return model_; }
  int64_t passes() const { return prompts() + routing_.tokens; }
  // The next pass; false after the last one.
  bool Next(model::RoutingStep& step);

 private:
  int64_t prompts() const { return routing_.prompt_tokens > 0 ? routing_.sequences : 0; }
  void Drift();
  void Choose(int64_t sequence, model::RoutingStep& step);
  // What earlier layers would have predicted in place of logits_.
  void Predict(int64_t moe_layer, model::RoutingStep& step);

  const SyntheticRouting routing_;
  const weights::ModelSpec spec_;  // of its router
  const model::RoutingTraceModel model_;
  const RandomWords noise_;
  const RandomWords errors_;
  std::vector<float> popularity_;  // g: [layers, experts]
  std::vector<float> bias_;        // b: [sequences, layers, experts]
  std::vector<float> logits_;      // [experts]
  std::vector<float> predicted_logits_;
  std::vector<model::ExpertChoice> chosen_;  // [per_token]
  std::vector<model::ExpertChoice> next_;
  int64_t pass_ = 0;
  uint64_t drawn_ = 0;         // of noise_
  uint64_t drawn_errors_ = 0;  // of errors_
};

// Popularity and drift that give a wanted ColdShare and AverageAccuracy (routing_statistics.h), and what they give.
struct RoutingFit {
  double popularity = 0;
  double drift = 0;
  double cold_share = 0;
  double accuracy = 0;
};
// Of `like`, everything but popularity and drift counts. Calls `progress` with the share of the work that is done.
// FAILED_PRECONDITION says what can be reached if the wanted share or accuracy cannot.
absl::StatusOr<RoutingFit> FitRouting(SyntheticRouting like, double cold_share, double accuracy,
                                      const std::function<void(double done)>& progress);

}  // namespace moestro::experts
