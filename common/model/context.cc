#include "common/model/context.h"

#include "common/model/rope.h"

namespace moestro {
namespace {

AttentionShape AbsorbedShape(const ModelSpec& spec) {
  return {.heads = spec.num_heads,
          .kv_heads = 1,
          .key_dim = spec.kv_dim(),
          .value_dim = spec.kv_lora_rank,
          .scale = static_cast<float>(SoftmaxScale(spec)),
          .step_blocks = kLatentStepBlocks};
}

AttentionShape HeadShape(const ModelSpec& spec) {
  return {.heads = spec.num_heads,
          .kv_heads = spec.has_grouped_queries() ? spec.num_kv_heads : spec.num_heads,
          .key_dim = spec.qk_head_dim(),
          .value_dim = spec.v_head_dim,
          .scale = static_cast<float>(SoftmaxScale(spec)),
          .kv_heads_together = spec.has_grouped_queries() ? spec.num_kv_heads : 1,
          .step_blocks = spec.has_grouped_queries() ? 1 : kLatentStepBlocks};
}

}  // namespace

EngineContext::EngineContext(const ModelSpec& model, const CpuKernels& cpu_kernels, WorkerPool& workers,
                             int64_t max_rows)
    : spec(model),
      kernels(cpu_kernels),
      pool(workers),
      activations(model, max_rows, workers.threads()),
      head_attention(cpu_kernels, workers, HeadShape(model)),
      moe_progress(model) {
  if (!model.has_grouped_queries()) absorbed_attention.emplace(cpu_kernels, workers, AbsorbedShape(model));
}

}  // namespace moestro
