// The second half of a layer: a dense MLP, or routed experts plus a shared one.
#pragma once

#include "absl/status/status.h"
#include "common/model/binding.h"
#include "common/model/context.h"
#include "common/model/moe.h"

namespace moestro {

// residual += sum over chosen experts, in ascending id, of weight * expert(x), then + always(x); x = norm(residual).
// INTERNAL if the router's scores of a row are NaN.
absl::Status RunFeedForward(EngineContext& context, const FeedForwardWeights& weights, int64_t rows);

// Its first part: x = norm(residual) and, unless the layer is dense, each row's choice of experts. Needs of the weights
// `norm`, `router` and `bias` only. INTERNAL as above.
absl::Status NormAndRoute(EngineContext& context, const FeedForwardWeights& weights, int64_t rows);

inline MoeContext MoeContextOf(EngineContext& context) {
  return {context.spec, context.kernels, context.pool, context.activations, context.moe_progress};
}

}  // namespace moestro
