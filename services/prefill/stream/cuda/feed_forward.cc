#include "services/prefill/stream/cuda/feed_forward.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/kernels/cuda/routing.h"

namespace moestro {
namespace {

static_assert(kMaxExpertsTogether <= cuda::kMaxMatrices);

// sum += mlp(normed_narrow) of some rows; `sum` is that of the first of all rows.
absl::Status AddMlp(const CudaPass& pass, const MlpWeights& w, IndexRange rows, float* sum, cuda::Stream stream) {
  const CudaActivations& a = pass.activations;
  const int64_t width = CudaStride(w.gate.rows);
  const uint16_t* x = a.normed_narrow + rows.begin * pass.hidden_stride();
  MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchGateUp(ShapeOf(w.gate, x, pass.hidden_stride(), a.gated, width),
                                                      PointersOf(w.gate), PointersOf(w.up), rows.size(), stream)));
  const int64_t hidden = pass.spec.hidden_size;
  return LaunchStatus(cuda::LaunchLinear(
      ShapeOf(w.down, a.gated, width, sum + rows.begin * hidden, hidden, cuda::LinearOutput::kAddF32),
      PointersOf(w.down), rows.size(), stream));
}

// expert_out of a tile's routed rows: of the experts' large tiles, or of their small ones.
absl::Status RunExpertTiles(const CudaPass& pass, std::span<const MlpWeights> experts, int64_t first, IndexRange rows,
                            const cuda::RoutingPlan& plan, bool small, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const CudaActivations& a = pass.activations;
  const int64_t count = std::ssize(experts);
  const int64_t most = rows.size() * std::min(spec.experts_per_token, count);  // rows that can have chosen these
  const int32_t* begin = small ? plan.small_begin : plan.large_begin;
  cuda::LinearGroups groups{.matrices = {},
                            .first_group = static_cast<int32_t>(first),
                            .row_of = plan.row_of,
                            .tiles = small ? plan.small : plan.large,
                            .first_tile = begin + first,
                            .end_tile = begin + first + count,
                            .max_tiles = small ? cuda::MaxSmallTiles(most, count) : cuda::MaxLargeTiles(most, count),
                            .tile_tokens = small ? cuda::kSmallTile : cuda::kLargeTile};
  cuda::MatrixList up, down;
  for (int64_t e = 0; e < count; ++e) {
    groups.matrices.of[e] = PointersOf(experts[e].gate);
    up.of[e] = PointersOf(experts[e].up);
    down.of[e] = PointersOf(experts[e].down);
  }
  const int64_t width = CudaStride(spec.moe_intermediate_size);
  const uint16_t* x = a.normed_narrow + rows.begin * pass.hidden_stride();
  MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchGroupedGateUp(
      ShapeOf(experts[0].gate, x, pass.hidden_stride(), a.gated, width), groups, up, stream)));
  groups.matrices = down;
  groups.row_of = nullptr;
  return LaunchStatus(cuda::LaunchGroupedLinear(
      ShapeOf(experts[0].down, a.gated, width, a.expert_out, spec.hidden_size), groups, stream));
}

}  // namespace

absl::Status Dense(const CudaPass& pass, const FeedForwardWeights& w, cuda::Stream stream) {
  for (int64_t t = 0; t < pass.tiles(); ++t) {
    MOE_RETURN_IF_ERROR(NormResidual(pass, w.norm, pass.Tile(t), nullptr, stream));
    MOE_RETURN_IF_ERROR(AddMlp(pass, w.always, pass.Tile(t), pass.activations.residual, stream));
  }
  return absl::OkStatus();
}

absl::Status RouteRows(const CudaPass& pass, const FeedForwardWeights& w, int32_t* has_nan, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const CudaActivations& a = pass.activations;
  const int64_t chosen = spec.experts_per_token;
  for (int64_t t = 0; t < pass.tiles(); ++t) {
    const IndexRange tile = pass.Tile(t);
    // The router reads the F32 form: a choice between experts is not continuous in it.
    MOE_RETURN_IF_ERROR(NormResidual(pass, w.norm, tile, a.normed, stream));
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRouterLogits(w.router, spec.num_experts, spec.hidden_size, a.normed,
                                                              tile.size(), a.router_logits, stream)));
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchChooseExperts({.logits = a.router_logits,
                                                                .bias = w.bias,
                                                                .rows = tile.size(),
                                                                .experts = spec.num_experts,
                                                                .chosen = chosen,
                                                                .score = cuda::RouterScore::kSigmoid,
                                                                .groups = spec.num_expert_groups,
                                                                .kept_groups = spec.experts_topk_groups,
                                                                .rank = cuda::GroupRank::kTwoLargest,
                                                                .normalise = spec.norm_topk_prob != 0,
                                                                .scale = static_cast<float>(spec.routed_scaling_factor),
                                                                .ids = a.ids + tile.begin * chosen,
                                                                .weights = a.weights + tile.begin * chosen,
                                                                .has_nan = has_nan},
                                                               stream)));
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchPlanExperts(a.ids + tile.begin * chosen, 1, tile.size(), chosen,
                                                             spec.num_experts, a.plans[t], stream)));
  }
  return absl::OkStatus();
}

absl::Status Experts(const CudaPass& pass, std::span<const MlpWeights> experts, int64_t first, cuda::Stream stream) {
  const CudaActivations& a = pass.activations;
  const int64_t chosen = pass.spec.experts_per_token, hidden = pass.spec.hidden_size;
  for (int64_t t = 0; t < pass.tiles(); ++t) {
    const IndexRange rows = pass.Tile(t);
    const cuda::RoutingPlan& plan = a.plans[t];
    for (const bool small : {false, true}) {
      MOE_RETURN_IF_ERROR(RunExpertTiles(pass, experts, first, rows, plan, small, stream));
    }
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchCombine({.expert_out = a.expert_out,
                                                          .ids = a.ids + rows.begin * chosen,
                                                          .weights = a.weights + rows.begin * chosen,
                                                          .routed_of = plan.routed_of,
                                                          .first = first,
                                                          .end = first + std::ssize(experts),
                                                          .rows = rows.size(),
                                                          .chosen = chosen,
                                                          .hidden = hidden,
                                                          .sums = a.sums + rows.begin * hidden},
                                                         stream)));
  }
  return absl::OkStatus();
}

absl::Status AddSharedExpert(const CudaPass& pass, const MlpWeights& w, cuda::Stream stream) {
  const CudaActivations& a = pass.activations;
  for (int64_t t = 0; t < pass.tiles() && w.gate.rows > 0; ++t) {
    MOE_RETURN_IF_ERROR(AddMlp(pass, w, pass.Tile(t), a.sums, stream));
  }
  return LaunchStatus(cuda::LaunchAdd(a.sums, pass.rows * pass.spec.hidden_size, a.residual, stream));
}

}  // namespace moestro
