// How fast a batch of requests decodes on a device that the model does not fit, by the model of MoE-Lightning (sections
// 4.2, 3.3): weights of routed experts come over the link layer by layer, for all micro-batches of a layer together,
// and attention is computed on the host, where the cache lies, or on the device.
//
// For a layer, N requests in N/μ micro-batches, W bytes of experts, prompts of s and outputs of n tokens:
//   link    ((1 - r_w) W + A_g (1 - r_c) KV of s + n/2 tokens) / rate
//   device  F_g experts + A_g attention     experts: max(operations / rate, bytes / rate), N/μ times; attention of
//   host    the rest                        s + n tokens likewise
// A layer takes the longest of the three, a step all layers (Eq. 12 to 14).
//
// Left out, as there: projections of attention, the router, the head, activations that cross the link.
//
// Peaks of memory, as in the published program: on the device all weights but the experts', r_w of those, the rest of
// two layers, a micro-batch's rows in prefill (PrefillRows) and with A_g = 1 the whole cache; on the host the other
// experts, two pinned layers, the cache, and the prompts' rows.
#pragma once

#include <cstdint>
#include <optional>

#include "common/roofline/intensity.h"
#include "common/roofline/roofline.h"
#include "common/roofline/work_count.h"
#include "common/tensor/dtype.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

struct BatchWorkload {
  double prompt = 0;    // tokens of each request; padded: of the longest
  double generate = 0;  // tokens after it, at least 2
};

struct BatchPolicy {
  int64_t micro_batch = 0;  // requests
  int64_t micro_batches = 0;
  bool device_attention = false;
  bool device_experts = true;
  double resident_weights = 0;  // share of the routed experts' weights that stays on the device
  double resident_cache = 0;    // share of the cache that stays there between steps, with attention on the device

  int64_t requests() const { return micro_batch * micro_batches; }
};

// Shares of the memories that a policy may fill; the rest is for what the model leaves out. As MoE-Lightning.
inline constexpr double kDeviceMemoryShare = 0.86;
inline constexpr double kHostMemoryShare = 0.80;

struct PolicyCost {
  // Of a layer in a step.
  double link_seconds = 0;
  double device_seconds = 0;
  double host_seconds = 0;
  double layer_seconds = 0;
  double step_seconds = 0;       // of all layers
  double tokens_per_second = 0;  // all generated tokens over all steps but the first, whose token prefill gives
  // At their peaks.
  double device_bytes = 0;
  double host_bytes = 0;
};

// What the device holds of the prompts' rows between two layers.
enum class PrefillRows {
  kAll,           // of all requests
  kMicroBatches,  // of the micro-batch and the next
};

class BatchModel {
 public:
  // Linear layers have the type `linear`. The spec must outlive it, and have routed experts.
  BatchModel(const weights::ModelSpec& spec, DType linear, PrefillRows rows = PrefillRows::kAll);

  PolicyCost CostOf(const Machine& machine, const BatchWorkload& workload, const BatchPolicy& policy) const;

  // All prompts on the device, or without one on the host: all operations but attention's, or the streamed weights
  // once.
  double PrefillSeconds(const Machine& machine, const BatchWorkload& workload, const BatchPolicy& policy) const;

  // The policy with the shares that need the link least and fit both memories; none: it does not fit.
  std::optional<BatchPolicy> WithBestShares(const Machine& machine, const BatchWorkload& workload,
                                            BatchPolicy policy) const;

 private:
  // A linear function of resident_weights and resident_cache.
  struct Line {
    double constant = 0;
    double weights = 0;
    double cache = 0;
  };
  struct Peaks {
    Line device_prefill;
    Line device_decode;
    Line host;
  };
  static double At(const Line& line, const BatchPolicy& policy);
  Line LinkBytes(const BatchWorkload& workload, const BatchPolicy& policy) const;
  Peaks PeaksOf(const Machine& machine, const BatchWorkload& workload, const BatchPolicy& policy) const;

  // Of a micro-batch's rows, in a layer on average: some see a window only.
  Work Attention(const BatchWorkload& workload, const BatchPolicy& policy) const;

  const weights::ModelSpec& spec_;
  PrefillRows rows_;
  double layers_ = 0;
  double moe_layers_ = 0;      // of these, with routed experts
  double layer_weights_ = 0;   // bytes of their routed experts, in a layer
  double other_weights_ = 0;   // bytes of the model's other weights, but router, head and embedding
  double row_elements_ = 0;    // weights that multiply a row, of all layers, but those
  double position_bytes_ = 0;  // of the cache, in a layer
  WeightCount expert_;
};

}  // namespace moestro::roofline
