// The time of a whole prompt, from what some layers were measured to take (measure_layers.h, on a device
// services/prefill/stream/measure.h) and the operations and bytes of the others (work_count.h).
//
// A pass of rows takes as long in every layer of a kind: what was measured for that many rows, and the operations of
// attention to what comes before. So a measurement of a layer or two tells of the model, and one of few rows of a long
// prompt. What it does not know, such as a prompt's experts, differs between prompts as much.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/base/proportional_parts.h"
#include "common/inference/prompt_costs.h"
#include "common/model/engine.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

// Of the layers with experts, and of those without.
struct LayerTimes {
  struct Sample {
    int64_t rows = 0;  // the first of a prompt, in one pass
    double dense = 0;  // seconds; 0: the model has no such layer
    double moe = 0;
  };
  model::MlaForm form = model::MlaForm::kAbsorbed;  // of the samples
  std::vector<Sample> samples = {};                 // in ascending order of rows; at least one
  // By form: of an operation of attention to earlier tokens.
  std::array<double, 2> attention_seconds{};
  double head = 0;  // of the head, for a row or few

  // Weights that stream: seconds of their copies.
  double dense_load = 0;
  double moe_load = 0;      // all of an MoE layer
  double expert_load = 0;   // of that, the routed experts
  double link_seconds = 0;  // of a byte that is copied

  double& attention(model::MlaForm which) { return attention_seconds[static_cast<size_t>(which)]; }
  double attention(model::MlaForm which) const { return attention_seconds[static_cast<size_t>(which)]; }
};

// Operations of attention of `rows` rows after `before` others, in a layer with this window: scores and value sums, and
// in the un-absorbed form the expansion of the latents of what comes before.
double AttentionOperations(const weights::ModelSpec& spec, model::MlaForm form, int64_t window, double before,
                           double rows);

class PromptForecast {
 public:
  // Both must outlive it.
  PromptForecast(const weights::ModelSpec& spec, const LayerTimes& times);

  // One pass, without the head.
  double Pass(model::MlaForm form, double before, double rows) const;

  // A step of decode without prompts: a row of each of so many sequences, which are short.
  double StepSeconds(int64_t sequences) const;

  // In passes of `chunk` rows, weights read in place.
  double InPlace(model::MlaForm form, int64_t chunk, int64_t before, int64_t rows) const;

  // In steps of decode, in which `decoding` other sequences have a row each. Beside them a step has as many rows of the
  // prompt as keep it within `bound_seconds`, but at least `least`.
  struct Steps {
    int64_t max_rows = 0;
    int64_t least = 0;
    double bound_seconds = 0;
    int64_t decoding = 0;
  };
  double Chunked(const Steps& steps, int64_t before, int64_t rows) const;
  // The next of these steps, when `left` rows are left.
  struct Step {
    int64_t rows = 0;
    double seconds = 0;
  };
  Step NextStep(const Steps& steps, int64_t before, int64_t left) const;

  // Weights stream, in `passes` passes, through devices that share a layer's experts and the rows. What the one does
  // whose times these are; the others are taken to be no slower in their parts.
  struct Streams {
    int64_t passes = 1;
    ProportionalParts devices = {};
    int64_t device = 0;          // whose times these are
    bool own_processors = true;  // false: devices share the cores, so several compute no faster than one
    // Of rows and experts.
    double share() const { return static_cast<double>(devices.share(device)) / static_cast<double>(devices.total()); }
  };
  PromptCost::Point Streamed(model::MlaForm form, const Streams& streams, int64_t rows) const;

  // More, for each pair of a new token and an earlier one; nothing for layers with a window. `expanded_every`: rows
  // that use an expansion of the latents together. `share`: of the rows, that the device has.
  double PairSeconds(model::MlaForm form, int64_t expanded_every, double share = 1) const;

 private:
  // Layers that are alike.
  struct Kind {
    bool moe = false;
    int64_t window = 0;
    double layers = 0;
  };
  double Compute(const Kind& kind, model::MlaForm form, double before, double rows) const;
  // Of a layer, without attention operations.
  double Base(bool moe, double rows) const;

  const weights::ModelSpec& spec_;
  const LayerTimes& times_;
  std::vector<Kind> kinds_;
};

// Points for prompts of 16, 24, 32, 48, ... and `longest` tokens, up to the first length for which `at` has none, or
// more seconds than a message may say. `at` gives seconds and slack, and is called in ascending order.
std::vector<PromptCost::Point> CostPoints(int64_t longest,
                                          absl::FunctionRef<std::optional<PromptCost::Point>(int64_t tokens)> at);

}  // namespace moestro::roofline
