// From router logits to rows sorted by expert, and back: everything a mixture-of-experts layer does on the device
// around its products, without the host knowing which experts were chosen.
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
// How a group of experts is ranked, if there are several.
enum class GroupRank {
  kTwoLargest,  // by the sum of its two largest biased scores: DeepSeek-V3
  kLargest,     // by its largest: DeepSeek-V2
};

// The selection rules of common/model/moe/gating.h and its kin. Ties go to the lower id, of group and expert alike.
struct ChooseExpertsArgs {
  const float* logits = nullptr;  // [rows, experts]
  const float* bias = nullptr;    // [experts], takes part in the choice only; null: none
  int64_t rows = 0;
  int64_t experts = 0;  // at most kMaxExperts
  int64_t chosen = 0;   // of a row; at most kMaxChosen, and the experts of the groups that stay
  RouterScore score = RouterScore::kSigmoid;
  int64_t groups = 1;  // contiguous, of equal size; at most kMaxGroups
  int64_t kept_groups = 1;
  GroupRank rank = GroupRank::kTwoLargest;
  bool normalise = true;  // weights are divided by their sum
  float scale = 1;        // and multiplied by this

  int32_t* ids = nullptr;      // [rows, chosen], each row's in ascending order
  float* weights = nullptr;    // [rows, chosen]
  int64_t stride = 1;          // from one choice to the next in both: 2 where they are pairs, as ExpertChoice
  int32_t* has_nan = nullptr;  // becomes 1 if a biased score is NaN; whoever reads it sets it to 0 before
};
LaunchResult LaunchChooseExperts(const ChooseExpertsArgs& args, Stream stream);

// The routed rows: row r of the batch appears once for each expert it chose, sorted by expert, then by row. Device
// memory of the caller's, of these sizes; R = rows * chosen.
struct RoutingPlan {
  int32_t* begin = nullptr;      // [experts + 1]: an expert's routed rows are [begin[e], begin[e + 1])
  int32_t* row_of = nullptr;     // [R]: the row of the batch behind each routed row
  int32_t* routed_of = nullptr;  // [rows, chosen]: where the row's choices went
  // An expert's rows as tiles: as many large ones as it fills, small ones for a rest of at most kSmallRest rows, one
  // more large one for a greater rest. Both lists are in order of experts: of e they are [begin[e], begin[e + 1]).
  TokenTile* small = nullptr;      // [MaxSmallTiles(R, experts)]
  TokenTile* large = nullptr;      // [MaxLargeTiles(R, experts)]
  int32_t* small_begin = nullptr;  // [experts + 1]
  int32_t* large_begin = nullptr;  // [experts + 1]
};

// More small tiles than this would expand an expert's weights too often.
inline constexpr int64_t kSmallRest = 2 * kSmallTile;
constexpr int64_t MaxSmallTiles(int64_t rows, int64_t experts) {
  const int64_t by_experts = experts * (kSmallRest / kSmallTile);
  return rows < by_experts ? rows : by_experts;
}
constexpr int64_t MaxLargeTiles(int64_t rows, int64_t experts) {
  const int64_t rests = rows / (kSmallRest + 1);  // that are too great for small tiles
  return rows / kLargeTile + (rests < experts ? rests : experts);
}

// ids: [rows, chosen] as ChooseExperts writes them, `stride` apart.
LaunchResult LaunchPlanExperts(const int32_t* ids, int64_t stride, int64_t rows, int64_t chosen, int64_t experts,
                               const RoutingPlan& plan, Stream stream);

// A row goes out once for each of its choices, to where a plan has it: out[routed_of[c]] = x[c / chosen] and
// out_ids[routed_of[c]] = ids[c], for every choice c.
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
// kInvalidArgument if a requirement is not kept.
LaunchResult LaunchSpreadRows(const SpreadRowsArgs& args, Stream stream);

// sums[r] += sum over those of the row's choices that are in [first, end), in ascending id, of weight *
// expert_out[routed row]: fused multiply-adds in the order of common/model/moe/moe.h. With first = 0 sums begin at 0,
// whatever is there. So all experts of a layer, in ascending groups, leave the whole sums.
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
