// The MLPs of a layer on rows whose experts are known: "Cloud-grade SLOs for local MoE", section 3.5.
#pragma once

#include <cstdint>
#include <span>

#include "common/kernels/cpu/kernels.h"
#include "common/model/activations.h"
#include "common/model/binding.h"
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

}  // namespace moestro
