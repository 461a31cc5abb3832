#include "common/engine/cuda/feed_forward.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::engine {
namespace {

static_assert(kMaxExpertsTogether <= cuda::kMaxMatrices);

// out (+)= mlp(x) of some rows; `out` is that of the first of them.
absl::Status RunMlp(const CudaRows& rows, const model::MlpWeights& w, IndexRange of, float* out,
                    cuda::LinearOutput output, cuda::Stream stream) {
  uint16_t* const gated = rows.activations.gated;
  const int64_t width = CudaStride(w.gate.rows), hidden = rows.spec.hidden_size;
  cuda::LinearShape shape = ShapeOf(w.gate, rows.InputsOf(w.gate, of), gated, width);
  MOE_RETURN_IF_ERROR(EncodeFp8(rows.activations, of.size(), &shape, stream));
  MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchGateUp(shape, PointersOf(w.gate), PointersOf(w.up), of.size(), stream)));
  MOE_ASSIGN_OR_RETURN(const CudaInputRows in, CodeInPlace(rows.coded(), w.down, gated, width, of.size(), stream));
  return Multiply(rows, ShapeOf(w.down, in, out, hidden, output), PointersOf(w.down), of.size(), stream);
}

// The rule of router.h for these logits. Where the choices go, the caller adds.
cuda::ChooseExpertsArgs ChoiceOf(const weights::ModelSpec& spec, const float* logits, const float* bias, int64_t rows) {
  return {.logits = logits,
          .bias = bias,
          .rows = rows,
          .experts = spec.num_experts,
          .chosen = spec.experts_per_token,
          .score = spec.softmax_router != 0 ? cuda::RouterScore::kSoftmax : cuda::RouterScore::kSigmoid,
          .groups = spec.num_expert_groups,
          .kept_groups = spec.experts_topk_groups,
          .rank = spec.largest_of_group != 0 ? cuda::GroupRank::kLargest : cuda::GroupRank::kTwoLargest,
          .normalise = spec.norm_topk_prob != 0,
          .scale = static_cast<float>(spec.routed_scaling_factor)};
}

// Calls visit(rows, their plan) for all tiles of rows.
template <typename Visit>
absl::Status ForRoutedTiles(const CudaRows& rows, const RoutedRows& routed, const Visit& visit) {
  const int64_t tile_rows = RoutedTileRows(rows.spec, rows.activations.tile_rows, routed.chosen);
  for (int64_t t = 0; t * tile_rows < routed.rows; ++t) {
    MOE_RETURN_IF_ERROR(visit(IndexRange{t * tile_rows, std::min((t + 1) * tile_rows, routed.rows)},
                              rows.activations.plans[static_cast<size_t>(t)]));
  }
  return absl::OkStatus();
}

RoutedRows Part(const CudaRows& rows, const RoutedRows& routed, IndexRange of) {
  const int64_t first_choice = of.begin * routed.chosen * routed.stride;
  return {
      .rows = of.size(),
      .chosen = routed.chosen,
      .ids = routed.ids + first_choice,
      .weights = routed.weights == nullptr ? nullptr : routed.weights + first_choice,
      .stride = routed.stride,
      .x = routed.x + of.begin * rows.x_stride(),
      .codes = routed.codes == nullptr ? nullptr : routed.codes + of.begin * cuda::Int8Stride(rows.spec.hidden_size),
      .sums = routed.sums + of.begin * rows.spec.hidden_size};
}

// Of experts in a tile's plan: their large tiles, or their small ones.
cuda::LinearGroups GroupsOf(const RoutedRows& tile, const cuda::RoutingPlan& plan, int64_t first, int64_t count,
                            bool small) {
  const int64_t most = tile.rows * std::min(tile.chosen, count);  // rows that can have chosen these
  const int32_t* begin = small ? plan.small_begin : plan.large_begin;
  return {.matrices = {},
          .first_group = static_cast<int32_t>(first),
          .row_of = plan.row_of,
          .tiles = small ? plan.small : plan.large,
          .first_tile = begin + first,
          .end_tile = begin + first + count,
          .max_tiles = small ? cuda::MaxSmallTiles(most, count) : cuda::MaxLargeTiles(most, count),
          .tile_tokens = small ? cuda::kSmallTile : cuda::kLargeTile};
}

cuda::MatrixList ListOf(std::span<const model::MlpWeights> experts, PackedMatrix model::MlpWeights::*matrix,
                        const float* model::MlpWeights::*bias) {
  cuda::MatrixList list;
  for (size_t e = 0; e < experts.size(); ++e) list.of[e] = PointersOf(experts[e].*matrix, experts[e].*bias);
  return list;
}

// expert_out of a tile's routed rows, of FP8 weights with inputs in FP8. The experts' rows are gathered as they are
// rounded: then each routed row has its own.
absl::Status RunFp8Experts(const CudaRows& rows, std::span<const model::MlpWeights> experts, int64_t first,
                           const RoutedRows& tile, const cuda::RoutingPlan& plan, cuda::Stream stream) {
  const CudaActivations& a = rows.activations;
  const int64_t count = std::ssize(experts), width = CudaStride(rows.spec.moe_intermediate_size);
  const auto encode = [&](cuda::EncodeFp8Args args) {
    args.rows = tile.rows * std::min(tile.chosen, count);
    args.out = a.fp8_codes;
    args.begin = plan.begin + first;
    args.end = plan.begin + first + count;
    return LaunchStatus(cuda::LaunchEncodeFp8(args, stream));
  };
  const auto groups_of = [&](bool small, const cuda::MatrixList& matrices) {
    cuda::LinearGroups groups = GroupsOf(tile, plan, first, count, small);
    groups.matrices = matrices;
    groups.row_of = nullptr;
    return groups;
  };
  const cuda::MatrixList gates = ListOf(experts, &model::MlpWeights::gate, &model::MlpWeights::gate_bias),
                         ups = ListOf(experts, &model::MlpWeights::up, &model::MlpWeights::up_bias),
                         downs = ListOf(experts, &model::MlpWeights::down, &model::MlpWeights::down_bias);
  MOE_RETURN_IF_ERROR(
      encode({.x = tile.x, .x_stride = rows.x_stride(), .cols = rows.spec.hidden_size, .row_of = plan.row_of}));
  cuda::LinearShape shape = ShapeOf(experts[0].gate, {}, a.gated, width);
  shape.codes = a.fp8_codes;
  shape.swiglu_limit = static_cast<float>(rows.spec.swiglu_limit);
  shape.swiglu_alpha = static_cast<float>(rows.spec.swiglu_alpha);
  for (const bool small : {false, true}) {
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchGroupedGateUp(shape, groups_of(small, gates), ups, stream)));
  }
  MOE_RETURN_IF_ERROR(encode({.x = a.gated, .x_stride = width, .cols = rows.spec.moe_intermediate_size}));
  shape = ShapeOf(experts[0].down, {}, a.expert_out, rows.spec.hidden_size);
  shape.codes = a.fp8_codes;
  for (const bool small : {false, true}) {
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchGroupedLinear(shape, groups_of(small, downs), stream)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunGroupedMlp(const weights::ModelSpec& spec, std::span<const model::MlpWeights> experts,
                           cuda::LinearGroups groups, const uint16_t* x, const uint16_t* codes, uint16_t* gated,
                           float* out, cuda::Stream stream) {
  cuda::MatrixList up, down;
  for (size_t e = 0; e < experts.size(); ++e) {
    groups.matrices.of[e] = PointersOf(experts[e].gate, experts[e].gate_bias);
    up.of[e] = PointersOf(experts[e].up, experts[e].up_bias);
    down.of[e] = PointersOf(experts[e].down, experts[e].down_bias);
  }
  const int64_t width = CudaStride(spec.moe_intermediate_size);
  CudaInputRows in{x, CudaStride(spec.hidden_size)};
  if (codes != nullptr && experts[0].gate.dtype == DType::kI8) {
    in = {codes, cuda::Int8Stride(spec.hidden_size), /*coded=*/true};
  }
  cuda::LinearShape shape = ShapeOf(experts[0].gate, in, gated, width);
  shape.swiglu_limit = static_cast<float>(spec.swiglu_limit);
  shape.swiglu_alpha = static_cast<float>(spec.swiglu_alpha);
  MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchGroupedGateUp(shape, groups, up, stream)));
  in = {gated, width, codes != nullptr && experts[0].down.dtype == DType::kI8};
  if (in.coded) {
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchEncodeInt8({.x = gated,
                                                             .x_stride = width,
                                                             .cols = spec.moe_intermediate_size,
                                                             .out = gated,
                                                             .out_stride = width,
                                                             .tiles = groups.tiles,
                                                             .first_tile = groups.first_tile,
                                                             .end_tile = groups.end_tile,
                                                             .max_tiles = groups.max_tiles},
                                                            stream)));
  }
  groups.matrices = down;
  groups.row_of = nullptr;
  return LaunchStatus(cuda::LaunchGroupedLinear(ShapeOf(experts[0].down, in, out, spec.hidden_size), groups, stream));
}

absl::Status Dense(const CudaRows& rows, const model::FeedForwardWeights& w, cuda::Stream stream) {
  for (int64_t t = 0; t < rows.tiles(); ++t) {
    const IndexRange tile = rows.Tile(t);
    MOE_RETURN_IF_ERROR(NormResidual(rows, w.norm, tile, nullptr, stream));
    MOE_RETURN_IF_ERROR(RunMlp(rows, w.dense, tile, rows.residual + tile.begin * rows.spec.hidden_size,
                               cuda::LinearOutput::kAddF32, stream));
  }
  return absl::OkStatus();
}

absl::Status Route(const CudaRows& rows, const model::FeedForwardWeights& w, model::ExpertChoice* choices,
                   int32_t* has_nan, cuda::Stream stream, const cuda::HandOver& hand_over) {
  static_assert(sizeof(model::ExpertChoice) == kChoiceStride * sizeof(int32_t), "pairs of an id and a weight");
  const weights::ModelSpec& spec = rows.spec;
  const CudaActivations& a = rows.activations;
  for (int64_t t = 0; t < rows.tiles(); ++t) {
    const IndexRange tile = rows.Tile(t);
    // The router reads the F32 form: a choice between experts is not continuous in it.
    MOE_RETURN_IF_ERROR(NormResidual(rows, w.norm, tile, a.normed, stream));
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRouterLogits(w.router, spec.num_experts, spec.hidden_size, a.normed,
                                                              tile.size(), a.router_logits, stream)));
    if (w.logit_bias != nullptr) {
      MOE_RETURN_IF_ERROR(
          LaunchStatus(cuda::LaunchAddBias(w.logit_bias, tile.size(), spec.num_experts, a.router_logits, stream)));
    }
    if (w.shared_gate != nullptr) {
      MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRouterLogits(w.shared_gate, 1, spec.hidden_size, a.normed,
                                                                tile.size(), a.shared_gates + tile.begin, stream)));
    }
    model::ExpertChoice* const first = choices + tile.begin * spec.experts_per_token;
    cuda::ChooseExpertsArgs choice = ChoiceOf(spec, a.router_logits, w.bias, tile.size());
    choice.ids = &first->expert;
    choice.weights = &first->weight;
    choice.stride = kChoiceStride;
    choice.has_nan = has_nan;
    if (hand_over.to != nullptr) {
      MOE_CHECK(rows.tiles() == 1);
      choice.hand_over = hand_over;
      choice.hand_over.x = rows.X(tile);
      choice.hand_over.width = spec.hidden_size;
    }
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchChooseExperts(choice, stream)));
  }
  return absl::OkStatus();
}

absl::Status CheckScores(std::span<const int32_t> has_nan) {
  const auto layer = std::ranges::find_if(has_nan, [](int32_t nan) { return nan != 0; });
  if (layer == has_nan.end()) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("layer %d: scores of experts are NaN", layer - has_nan.begin()));
}

RoutedRows OwnRows(const CudaRows& rows) {
  const CudaActivations& a = rows.activations;
  RoutedRows own = RoutedRows::Of(a.choices, rows.rows, rows.spec.experts_per_token);
  own.x = a.x;
  own.codes = a.codes;
  own.sums = a.sums;
  own.all_experts = true;
  return own;
}

absl::Status PlanRows(const CudaRows& rows, const RoutedRows& routed, cuda::Stream stream) {
  return ForRoutedTiles(rows, routed, [&](IndexRange of, const cuda::RoutingPlan& plan) {
    return LaunchStatus(cuda::LaunchPlanExperts(routed.ids + of.begin * routed.chosen * routed.stride, routed.stride,
                                                of.size(), routed.chosen, rows.spec.num_experts, plan, stream));
  });
}

absl::Status Experts(const CudaRows& rows, const RoutedRows& routed, std::span<const model::MlpWeights> experts,
                     int64_t first, cuda::Stream stream) {
  return ForRoutedTiles(rows, routed, [&](IndexRange of, const cuda::RoutingPlan& plan) -> absl::Status {
    RoutedRows tile = Part(rows, routed, of);
    if (rows.coded() && tile.codes == nullptr && experts[0].gate.dtype == DType::kI8) {
      uint16_t* const codes = rows.activations.routed_codes;
      MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchEncodeInt8({.x = tile.x,
                                                               .x_stride = rows.x_stride(),
                                                               .cols = rows.spec.hidden_size,
                                                               .out = codes,
                                                               .out_stride = cuda::Int8Stride(rows.spec.hidden_size),
                                                               .rows = tile.rows},
                                                              stream)));
      tile.codes = codes;
    }
    const CudaActivations& a = rows.activations;
    const bool fp8 =
        a.fp8_codes != nullptr && experts[0].gate.dtype == DType::kF8E4M3 && experts[0].down.dtype == DType::kF8E4M3;
    if (fp8) MOE_RETURN_IF_ERROR(RunFp8Experts(rows, experts, first, tile, plan, stream));
    for (const bool small : {false, true}) {
      if (fp8) break;
      MOE_RETURN_IF_ERROR(RunGroupedMlp(rows.spec, experts, GroupsOf(tile, plan, first, std::ssize(experts), small),
                                        tile.x, tile.codes, a.gated, a.expert_out, stream));
    }
    const bool together = routed.all_experts && of.size() == routed.rows;
    const int64_t end = first + std::ssize(experts);
    if (together && end < rows.spec.num_experts) return absl::OkStatus();
    return LaunchStatus(cuda::LaunchCombine({.expert_out = rows.activations.expert_out,
                                             .ids = tile.ids,
                                             .weights = tile.weights,
                                             .stride = tile.stride,
                                             .routed_of = plan.routed_of,
                                             .first = together ? 0 : first,
                                             .end = end,
                                             .rows = tile.rows,
                                             .chosen = tile.chosen,
                                             .hidden = rows.spec.hidden_size,
                                             .sums = tile.sums},
                                            stream));
  });
}

absl::Status AddSharedExpert(const CudaRows& rows, const model::MlpWeights& w, cuda::Stream stream) {
  const CudaActivations& a = rows.activations;
  const int64_t hidden = rows.spec.hidden_size;
  for (int64_t t = 0; t < rows.tiles() && w.gate.rows > 0; ++t) {
    const IndexRange tile = rows.Tile(t);
    float* const sums = a.sums + tile.begin * hidden;
    if (a.shared_gates == nullptr) {
      MOE_RETURN_IF_ERROR(RunMlp(rows, w, tile, sums, cuda::LinearOutput::kAddF32, stream));
      continue;
    }
    MOE_RETURN_IF_ERROR(RunMlp(rows, w, tile, a.expert_out, cuda::LinearOutput::kF32, stream));
    MOE_RETURN_IF_ERROR(LaunchStatus(
        cuda::LaunchAddGated(a.expert_out, a.shared_gates + tile.begin, tile.size(), hidden, sums, stream)));
  }
  return LaunchStatus(cuda::LaunchAdd(a.sums, rows.rows * hidden, rows.residual, stream));
}

absl::Status RunSharedExpert(const CudaRows& rows, const model::MlpWeights& w, float* shared, cuda::Stream stream) {
  for (int64_t t = 0; t < rows.tiles() && w.gate.rows > 0; ++t) {
    const IndexRange tile = rows.Tile(t);
    MOE_RETURN_IF_ERROR(
        RunMlp(rows, w, tile, shared + tile.begin * rows.spec.hidden_size, cuda::LinearOutput::kF32, stream));
  }
  return absl::OkStatus();
}

// In the engine's order: the shared expert is added to the sum of the others, and that to the residual.
absl::Status CombineExperts(const CudaRows& rows, const model::MlpWeights& w, const float* shared, const float* sums,
                            const float* next_norm, cuda::Stream stream) {
  const bool has_shared = w.gate.rows > 0;
  return LaunchStatus(cuda::LaunchAddExperts({.routed = sums,
                                              .shared = has_shared ? shared : nullptr,
                                              .gates = has_shared ? rows.activations.shared_gates : nullptr,
                                              .rows = rows.rows,
                                              .hidden = rows.spec.hidden_size,
                                              .residual = rows.residual},
                                             NormOf(rows, next_norm, {0, rows.rows}, nullptr), stream));
}

}  // namespace moestro::engine
