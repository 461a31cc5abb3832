// The second half of a layer: a dense MLP, or routed experts plus a shared one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/binding.h"
#include "common/model/buffer.h"
#include "common/model/context.h"
#include "common/model/moe/gating.h"
#include "common/model/moe/moe.h"
#include "common/platform/countdown.h"

namespace moestro {

// What the choice of experts needs beside the rows. R = max_rows.
class GatingBuffers {
 public:
  GatingBuffers(const ModelSpec& spec, int64_t max_rows);
  static int64_t Bytes(const ModelSpec& spec, int64_t max_rows);  // of the buffers

  Buffer<float> normed;                  // [R, hidden_size]: rows.x in F32, what the router reads
  Buffer<float> logits;                  // [R, num_experts]
  std::vector<ExpertChoice> choices;     // [R, experts_per_token]
  std::vector<absl::Status> row_status;  // [R]
  Countdown rows_normed;
  Countdown tasks_scored;  // of router logits

 private:
  GatingBuffers() = default;
  template <typename Take>
  void Visit(const ModelSpec& spec, int64_t max_rows, Take&& take);
};

// rows.residual += sum over chosen experts, in ascending id, of weight * expert(x), then + always(x); rows.x = x =
// norm(residual). INTERNAL if the router's scores of a row are NaN.
absl::Status RunFeedForward(const MoeContext& context, GatingBuffers& gating, const FeedForwardWeights& weights,
                            const RowsView& rows);

// Its first part: rows.x = norm(residual) and, unless the layer is dense, each row's choice of experts. Needs of the
// weights `norm`, `router` and `bias` only. INTERNAL as above.
absl::Status NormAndRoute(const EngineContext& context, GatingBuffers& gating, const FeedForwardWeights& weights,
                          const RowsView& rows);

}  // namespace moestro
