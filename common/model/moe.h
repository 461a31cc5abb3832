// The MLPs of a layer on rows whose experts are known: "Cloud-grade SLOs for local MoE", section 3.5.
#pragma once

#include <cstdint>
#include <span>

#include "common/kernels/cpu/kernels.h"
#include "common/model/activations.h"
#include "common/model/binding.h"
#include "common/model/expert_plan.h"
#include "common/model/moe_progress.h"
#include "common/model/router.h"
#include "common/platform/worker_pool.h"
#include "common/weights/model_spec.h"

namespace moestro {

// How the down projections wait for gate and up.
enum class MoeSync {
  kPerExpert,  // each for its own expert, within one run of the pool
  kGlobal,     // all for all, between two runs: what per-expert waits are measured against, and good for nothing else
};

// All that the MLPs need of an engine, so that they can be run without one.
struct MoeContext {
  const ModelSpec& spec;
  const CpuKernels& kernels;
  WorkerPool& pool;
  Activations& activations;  // for the pool's threads
  MoeProgress& progress;
};

// residual[row] += sum over the row's experts, in ascending id, of weight * expert(x[row]), then + always(x[row]),
// where x is context.activations.normed_narrow and residual context.activations.residual, both [rows, hidden]. The bits
// do not depend on rows that share the call, threads, domains or `sync`.
// choices: [rows, experts_per_token], each row's in ascending id; empty in a dense layer. 1 <= rows <= max_rows.
void RunMoe(const MoeContext& context, const FeedForwardWeights& weights, int64_t rows,
            std::span<const ExpertChoice> choices, MoeSync sync = MoeSync::kPerExpert);

// The same in pieces, for experts that are not all in memory at once, and for more rows than the activations hold: with
// sums at zero, RunExperts over all experts in ascending id, a few at a time, then AddSharedExpert. The bits are
// RunMoe's however it is cut.

// Some of a layer's experts.
struct ExpertSlice {
  std::span<const MlpWeights> weights;  // of experts first, first + 1, ...
  int64_t first = 0;
};

// sums[row] += sum over the slice's experts, in ascending id, of weight * expert(x[row]). The plan is of any number of
// rows; x: BF16, sums: F32, both [rows, hidden]. max_rows: of `context.activations`.
void RunExperts(const MoeContext& context, int64_t max_rows, const ExpertSlice& slice, const ExpertPlan& plan,
                const uint16_t* x, float* sums);

// residual[row] += sums[row] + always(x[row]), of the activations' rows; `always` may have no rows. Changes sums, F32
// [rows, hidden].
void AddSharedExpert(const MoeContext& context, const MlpWeights& always, int64_t rows, float* sums);

}  // namespace moestro
