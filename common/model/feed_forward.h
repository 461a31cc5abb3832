// The second half of a layer: a dense MLP, or routed experts plus a shared one.
#pragma once

#include "absl/status/status.h"
#include "common/model/binding.h"
#include "common/model/context.h"

namespace moestro {

// residual += sum over chosen experts, in ascending id, of weight * expert(x), then + always(x); x = norm(residual).
// INTERNAL if the router's scores of a row are NaN.
absl::Status RunFeedForward(EngineContext& context, const FeedForwardWeights& weights, int64_t rows);

}  // namespace moestro
