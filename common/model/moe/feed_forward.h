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

namespace moestro::model {

// The buffers of expert selection, besides the rows. R = max_rows.
class GatingBuffers {
 public:
  GatingBuffers(const weights::ModelSpec& spec, int64_t max_rows);
  static int64_t Bytes(const weights::ModelSpec& spec, int64_t max_rows);  // bytes of the buffers

  Buffer<float> normed;                  // [R, hidden_size]: rows.x in F32, the router's input
  Buffer<float> logits;                  // [R, num_experts]
  std::vector<ExpertChoice> choices;     // [R, experts_per_token]
  std::vector<absl::Status> row_status;  // [R]
  Countdown rows_normed;
  Countdown tasks_scored;  // router logits

 private:
  GatingBuffers() = default;
  template <typename Take>
  void Visit(const weights::ModelSpec& spec, int64_t max_rows, Take&& take);
};

// rows.residual += sum over chosen experts, in ascending id, of weight * expert(x), then + dense(x), times
// sigmoid(shared_gate . x) if there is a gate; rows.x = x = norm(residual). INTERNAL if a row's router scores are NaN.
absl::Status RunFeedForward(const MoeContext& context, GatingBuffers& gating, const FeedForwardWeights& weights,
                            const RowsView& rows);

// The first part: rows.x = norm(residual) and, unless the layer is dense, each row's choice of experts and weight of
// the shared one. Uses only the weights `norm`, `router`, `bias` and `shared_gate`. INTERNAL as above.
absl::Status NormAndRoute(const EngineContext& context, GatingBuffers& gating, const FeedForwardWeights& weights,
                          const RowsView& rows);

}  // namespace moestro::model
