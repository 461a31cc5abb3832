// What routers say of rows beside their choice: who was next to be chosen, and whom later layers would choose, from
// what this layer's experts read (HybriMoE, sections IV-C and IV-D).
#pragma once

#include <cstdint>
#include <span>

#include "common/kernels/cpu/kernels.h"
#include "common/model/buffer.h"
#include "common/model/moe/gating.h"
#include "common/model/schema.h"
#include "common/platform/worker_pool.h"
#include "common/weights/model_spec.h"

namespace moestro::model {

// Computes here, from x, so that scores and predictions are the same for every engine and device. A call costs as much
// as a router.
class GateReuse {  // not thread-safe; uses the pool
 public:
  // For passes of up to max_rows rows. All must outlive it.
  GateReuse(const weights::ModelSpec& spec, const ModelWeights& weights, const CpuKernels& kernels, WorkerPool& pool,
            int64_t max_rows);

  // Fills others, [rows, others.size() / rows], as NextExperts (gating.h) does.
  void NextBest(const LayerRouting& routing, std::span<ExpertChoice> others);
  // Fills chosen, [rows, experts_per_token], with what the `ahead`-th layer with experts behind the routing's would
  // choose. Rows whose scores are no numbers get experts -1.
  void Foresee(const LayerRouting& routing, int64_t ahead, std::span<ExpertChoice> chosen);

 private:
  const FeedForwardWeights& LayerOf(int64_t layer) const;
  std::span<const float> BiasOf(const FeedForwardWeights& layer) const;
  std::span<const float> LogitsOf(int64_t row) const;
  // logits_ = what `layer`'s router says of rows whose own layer, `of`, read `x`.
  void Score(const FeedForwardWeights& of, const FeedForwardWeights& layer, const uint16_t* x, int64_t rows);

  const weights::ModelSpec& spec_;
  const ModelWeights& weights_;
  const CpuKernels& kernels_;
  WorkerPool& pool_;
  Buffer<float> inputs_;  // [R, hidden_size], R = max_rows
  Buffer<float> logits_;  // [R, num_experts]
};

}  // namespace moestro::model
