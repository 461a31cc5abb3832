// What every stage of a forward pass works with.
#pragma once

#include <cstdint>
#include <optional>

#include "common/kernels/cpu/kernels.h"
#include "common/model/activations.h"
#include "common/model/flash_attention.h"
#include "common/model/moe_progress.h"
#include "common/platform/worker_pool.h"
#include "common/weights/model_spec.h"

namespace moestro {

struct EngineContext {
  // For passes of up to max_rows rows. Spec, kernels and pool must outlive it. REQUIRES a spec that CheckSpec
  // (binding.h) accepts.
  EngineContext(const ModelSpec& model, const CpuKernels& kernels, WorkerPool& pool, int64_t max_rows);

  const ModelSpec& spec;
  const CpuKernels& kernels;
  WorkerPool& pool;
  Activations activations;
  std::optional<FlashAttention> absorbed_attention;  // MLA: all heads over the latents
  FlashAttention head_attention;                     // over each head's own keys and values, or each group's (GQA)
  MoeProgress moe_progress;
};

}  // namespace moestro
