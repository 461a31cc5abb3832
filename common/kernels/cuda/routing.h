// From router logits to rows sorted by expert, and back. All work of a MoE layer around its products runs on the
// device; the host never learns which experts were chosen.
//
//   logits --ChooseExperts--> choices --PlanExperts--> RoutingPlan --> grouped products --Combine--> residual
#pragma once

#include <cstdint>

#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

inline constexpr int64_t kMaxExperts = 512;
inline constexpr int64_t kMaxChosen = 32;  // experts of a row
inline constexpr int64_t kMaxGroups = 32;

enum class RouterScore {
  kSigmoid,  // DeepSeek-V3, Kimi-K2, GLM-4.5
  kSoftmax,  // over all experts: Mixtral, Qwen, DBRX, DeepSeek-V2
};
// How groups of experts are ranked, if there are several.
enum class GroupRank {
  kTwoLargest,  // by the sum of its two largest biased scores: DeepSeek-V3
  kLargest,     // by its largest: DeepSeek-V2
};

// What a thread of the host waits for: inputs of a layer's experts, and their choices, in registered memory of the host
// (Device::KernelsRead, for reading and writing).
struct HandOver {
  const uint16_t* x = nullptr;  // BF16 [rows, width]; aligned to 16 bytes, as `to`; null: nothing is handed over
  int64_t width = 0;            // a multiple of 8
  uint16_t* to = nullptr;       // BF16 [rows, width]: of the host
  uint32_t* flags = nullptr;    // [rows], of the host: a row's becomes `flag` when its x and its choices are there
  uint32_t flag = 0;
};

// The selection rules of common/model/moe/gating.h and similar ones. Ties go to the lower id, for groups and experts.
struct ChooseExpertsArgs {
  const float* logits = nullptr;  // [rows, experts]
  const float* bias = nullptr;    // [experts], affects the choice only; null: none
  int64_t rows = 0;
  int64_t experts = 0;  // at most kMaxExperts
  int64_t chosen = 0;   // per row; at most kMaxChosen, and at most the experts of the kept groups
  RouterScore score = RouterScore::kSigmoid;
  int64_t groups = 1;  // contiguous, of equal size; at most kMaxGroups
  int64_t kept_groups = 1;
  GroupRank rank = GroupRank::kTwoLargest;
  bool normalise = true;  // weights are divided by their sum
  float scale = 1;        // and multiplied by this

  int32_t* ids = nullptr;      // [rows, chosen], ascending in each row
  float* weights = nullptr;    // [rows, chosen]
  int64_t stride = 1;          // between consecutive choices in both: 2 for pairs, as in ExpertChoice
  int32_t* has_nan = nullptr;  // becomes 1 if a biased score is NaN; the reader resets it to 0 first
  HandOver hand_over = {};     // then ids and weights are registered memory of the host, too
};
// kInvalidArgument if a requirement is violated.
LaunchResult LaunchChooseExperts(const ChooseExpertsArgs& args, Stream stream);

// The routed rows: row r of the batch appears once per chosen expert, sorted by expert, then by row. The caller's
// device memory, with these sizes; R = rows * chosen.
struct RoutingPlan {
  int32_t* begin = nullptr;      // [experts + 1]: an expert's routed rows are [begin[e], begin[e + 1])
  int32_t* row_of = nullptr;     // [R]: the row of the batch behind each routed row
  int32_t* routed_of = nullptr;  // [rows, chosen]: the routed row of each choice
  // An expert's rows as tiles: as many full large ones as possible; small ones for a rest of at most kSmallRest rows,
  // one more large one for a greater rest. Both lists are ordered by expert: those of e are [begin[e], begin[e + 1]).
  TokenTile* small = nullptr;      // [MaxSmallTiles(R, experts)]
  TokenTile* large = nullptr;      // [MaxLargeTiles(R, experts)]
  int32_t* small_begin = nullptr;  // [experts + 1]
  int32_t* large_begin = nullptr;  // [experts + 1]
};

// More small tiles would expand an expert's weights too often.
inline constexpr int64_t kSmallRest = 2 * kSmallTile;
constexpr int64_t MaxSmallTiles(int64_t rows, int64_t experts) {
  const int64_t by_experts = experts * (kSmallRest / kSmallTile);
  return rows < by_experts ? rows : by_experts;
}
constexpr int64_t MaxLargeTiles(int64_t rows, int64_t experts) {
  const int64_t rests = rows / (kSmallRest + 1);  // rests too large for small tiles
  return rows / kLargeTile + (rests < experts ? rests : experts);
}

// ids: [rows, chosen] as written by ChooseExperts, `stride` apart.
LaunchResult LaunchPlanExperts(const int32_t* ids, int64_t stride, int64_t rows, int64_t chosen, int64_t experts,
                               const RoutingPlan& plan, Stream stream);

// Copies a row once per choice to its routed row: out[routed_of[c]] = x[c / chosen] and out_ids[routed_of[c]] = ids[c],
// for every choice c.
struct SpreadRowsArgs {
  const uint16_t* x = nullptr;   // BF16 [rows, width]; aligned to 16 bytes, as `out`
  int64_t width = 0;             // a multiple of 8
  const int32_t* ids = nullptr;  // [rows, chosen], `stride` apart
  int64_t stride = 1;
  const int32_t* routed_of = nullptr;  // [rows, chosen]
  int64_t rows = 0;
  int64_t chosen = 0;
  uint16_t* out = nullptr;     // BF16 [rows * chosen, width]
  int32_t* out_ids = nullptr;  // [rows * chosen]
};
// kInvalidArgument if a requirement is violated.
LaunchResult LaunchSpreadRows(const SpreadRowsArgs& args, Stream stream);

// sums[r] += sum over the row's choices in [first, end), in ascending id, of weight * expert_out[routed row]: fused
// multiply-adds in the order of common/model/moe/moe.h. With first = 0, sums start at 0, whatever their contents. So
// ascending groups that cover all experts of a layer give the complete sums.
struct CombineArgs {
  const float* expert_out = nullptr;  // [R, hidden]
  const int32_t* ids = nullptr;       // [rows, chosen], `stride` apart
  const float* weights = nullptr;     // [rows, chosen], `stride` apart; null: all are 1
  int64_t stride = 1;
  const int32_t* routed_of = nullptr;  // [rows, chosen]
  int64_t first = 0;
  int64_t end = 0;
  int64_t rows = 0;
  int64_t chosen = 0;
  int64_t hidden = 0;
  float* sums = nullptr;  // [rows, hidden]
};
LaunchResult LaunchCombine(const CombineArgs& args, Stream stream);

}  // namespace moestro::cuda
