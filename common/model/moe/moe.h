// The MLPs of a layer for rows with known experts: "Cloud-grade SLOs for local MoE", section 3.5.
#pragma once

#include <cstdint>
#include <span>

#include "common/model/binding.h"
#include "common/model/context.h"
#include "common/model/moe/expert_buffers.h"
#include "common/model/moe/expert_plan.h"
#include "common/model/moe/gating.h"

namespace moestro::model {

// How down projections wait for gate and up.
enum class MoeSync {
  kPerExpert,  // each for its own expert, within one run of the pool
  kGlobal,     // all for all, between two runs: the baseline for measuring per-expert waits, with no other use
};

// rows.residual[row] += sum over the row's experts, in ascending id, of weight * expert(rows.x[row]), then +
// dense(rows.x[row]), times rows.shared_weights[row] if weights.shared_gate is there. The bits do not depend on the
// other rows of the call, threads, domains or `sync`. choices: [rows, experts_per_token], ascending ids in each row;
// empty in a dense layer. 1 to max_rows rows.
void RunMoe(const MoeContext& context, const FeedForwardWeights& weights, const RowsView& rows,
            std::span<const ExpertChoice> choices, MoeSync sync = MoeSync::kPerExpert);

// The same in pieces, for experts that are not all in memory at once, and for more rows than the buffers hold. Starting
// from zero sums, call RunExperts for all experts in ascending id, a few at a time, then AddSharedExpert. Any division
// gives RunMoe's bits.

// Some of a layer's experts.
struct ExpertSlice {
  std::span<const MlpWeights> weights;  // of experts first, first + 1, ...
  int64_t first = 0;
  std::span<const std::vector<MlpWeights>> of_domain = {};  // FeedForwardWeights::domain_experts
};

// sums[row] += sum over the slice's experts, in ascending id, of weight * expert(x[row]). The plan may have any number
// of rows; x: BF16, sums: F32, both [rows, hidden].
void RunExperts(const MoeContext& context, const ExpertSlice& slice, const ExpertPlan& plan, const uint16_t* x,
                float* sums);

// outputs[i] = expert(x[plan.routed[i].row]) for what the plan routes to the slice's experts, whatever its weights. x:
// BF16 [rows, hidden], outputs: F32 [routed, hidden]. Summed by axpy in ascending id they give RunExperts' bits.
void RunExpertOutputs(const MoeContext& context, const ExpertSlice& slice, const ExpertPlan& plan, const uint16_t* x,
                      float* outputs);

// outputs[row] = dense(rows.x[row]), F32 [rows, hidden], for 1 to max_rows rows; `dense` is not empty.
void RunSharedExpert(const MoeContext& context, const MlpWeights& dense, const RowsView& rows, float* outputs);

// rows.residual[row] += sums[row] + dense(rows.x[row]), times rows.shared_weights[row] if these are there, for 1 to
// max_rows rows; `dense` may be empty. Changes sums, F32 [rows, hidden].
void AddSharedExpert(const MoeContext& context, const MlpWeights& dense, const RowsView& rows, float* sums);

}  // namespace moestro::model
