#include "services/prefill/stream/cuda/feed_forward.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/model/cuda_routing.h"

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

// Calls visit(rows, their plan) for all tiles of rows. A tile has as many choices as one of the prompt's rows.
template <typename Visit>
absl::Status ForRoutedTiles(const CudaPass& pass, const RoutedRows& routed, const Visit& visit) {
  const int64_t tile_rows = pass.activations.tile_rows * pass.spec.experts_per_token / routed.chosen;
  for (int64_t t = 0; t * tile_rows < routed.rows; ++t) {
    MOE_RETURN_IF_ERROR(visit(IndexRange{t * tile_rows, std::min((t + 1) * tile_rows, routed.rows)},
                              pass.activations.plans[static_cast<size_t>(t)]));
  }
  return absl::OkStatus();
}

RoutedRows Part(const CudaPass& pass, const RoutedRows& routed, IndexRange rows) {
  const int64_t first_choice = rows.begin * routed.chosen * routed.stride;
  return {.rows = rows.size(),
          .chosen = routed.chosen,
          .ids = routed.ids + first_choice,
          .weights = routed.weights == nullptr ? nullptr : routed.weights + first_choice,
          .stride = routed.stride,
          .x = routed.x + rows.begin * pass.hidden_stride(),
          .sums = routed.sums + rows.begin * pass.spec.hidden_size};
}

// expert_out of a tile's routed rows: of the experts' large tiles, or of their small ones.
absl::Status RunExpertTiles(const CudaPass& pass, std::span<const MlpWeights> experts, int64_t first,
                            const RoutedRows& tile, const cuda::RoutingPlan& plan, bool small, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const CudaActivations& a = pass.activations;
  const int64_t count = std::ssize(experts);
  const int64_t most = tile.rows * std::min(tile.chosen, count);  // rows that can have chosen these
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
  MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchGroupedGateUp(
      ShapeOf(experts[0].gate, tile.x, pass.hidden_stride(), a.gated, width), groups, up, stream)));
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

absl::Status RouteRows(const CudaPass& pass, const FeedForwardWeights& w, const CudaChoices& choices, int32_t* has_nan,
                       cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const CudaActivations& a = pass.activations;
  for (int64_t t = 0; t < pass.tiles(); ++t) {
    const IndexRange tile = pass.Tile(t);
    const int64_t first_choice = tile.begin * spec.experts_per_token * choices.stride;
    // The router reads the F32 form: a choice between experts is not continuous in it.
    MOE_RETURN_IF_ERROR(NormResidual(pass, w.norm, tile, a.normed, stream));
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRouterLogits(w.router, spec.num_experts, spec.hidden_size, a.normed,
                                                              tile.size(), a.router_logits, stream)));
    cuda::ChooseExpertsArgs choice = ChoiceOf(spec, a.router_logits, w.bias, tile.size());
    choice.ids = choices.ids + first_choice;
    choice.weights = choices.weights + first_choice;
    choice.stride = choices.stride;
    choice.has_nan = has_nan;
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchChooseExperts(choice, stream)));
  }
  return absl::OkStatus();
}

RoutedRows OwnRows(const CudaPass& pass) {
  const CudaActivations& a = pass.activations;
  return {.rows = pass.rows,
          .chosen = pass.spec.experts_per_token,
          .ids = a.ids,
          .weights = a.weights,
          .x = a.normed_narrow,
          .sums = a.sums};
}

absl::Status PlanRows(const CudaPass& pass, const RoutedRows& routed, cuda::Stream stream) {
  return ForRoutedTiles(pass, routed, [&](IndexRange rows, const cuda::RoutingPlan& plan) {
    return LaunchStatus(cuda::LaunchPlanExperts(routed.ids + rows.begin * routed.chosen * routed.stride, routed.stride,
                                                rows.size(), routed.chosen, pass.spec.num_experts, plan, stream));
  });
}

absl::Status Experts(const CudaPass& pass, const RoutedRows& routed, std::span<const MlpWeights> experts, int64_t first,
                     cuda::Stream stream) {
  return ForRoutedTiles(pass, routed, [&](IndexRange rows, const cuda::RoutingPlan& plan) -> absl::Status {
    const RoutedRows tile = Part(pass, routed, rows);
    for (const bool small : {false, true}) {
      MOE_RETURN_IF_ERROR(RunExpertTiles(pass, experts, first, tile, plan, small, stream));
    }
    return LaunchStatus(cuda::LaunchCombine({.expert_out = pass.activations.expert_out,
                                             .ids = tile.ids,
                                             .weights = tile.weights,
                                             .stride = tile.stride,
                                             .routed_of = plan.routed_of,
                                             .first = first,
                                             .end = first + std::ssize(experts),
                                             .rows = tile.rows,
                                             .chosen = tile.chosen,
                                             .hidden = pass.spec.hidden_size,
                                             .sums = tile.sums},
                                            stream));
  });
}

absl::Status AddSharedExpert(const CudaPass& pass, const MlpWeights& w, cuda::Stream stream) {
  const CudaActivations& a = pass.activations;
  for (int64_t t = 0; t < pass.tiles() && w.gate.rows > 0; ++t) {
    MOE_RETURN_IF_ERROR(AddMlp(pass, w, pass.Tile(t), a.sums, stream));
  }
  return LaunchStatus(cuda::LaunchAdd(a.sums, pass.rows * pass.spec.hidden_size, a.residual, stream));
}

}  // namespace moestro
