// What every stage of a forward pass works with.
#pragma once

#include "common/kernels/cpu/kernels.h"
#include "common/model/activations.h"
#include "common/model/flash_attention.h"
#include "common/model/moe_progress.h"
#include "common/platform/worker_pool.h"
#include "common/weights/model_spec.h"

namespace moestro {

struct EngineContext {
  const ModelSpec& spec;
  const CpuKernels& kernels;
  WorkerPool& pool;
  Activations activations;
  FlashAttention absorbed_attention;
  FlashAttention unabsorbed_attention;
  MoeProgress moe_progress{spec};
};

}  // namespace moestro
