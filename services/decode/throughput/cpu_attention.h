// The host's part of a step: the cache in the pool's pages, and attention to it, on the CPU workers.
#pragma once

#include <cstdint>
#include <span>

#include "common/engine/batch_compute.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/attention/attention_buffers.h"
#include "common/model/attention/rope.h"
#include "common/model/binding.h"
#include "common/platform/worker_pool.h"

namespace moestro::decode {

class CpuAttention {  // one call at a time
 public:
  // Spec, weights, kernels and pool outlive it. max_rows: of a step.
  CpuAttention(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
               WorkerPool& pool, int64_t max_rows);

  // A step begins. `io` is in host memory.
  void Begin(std::span<const engine::MicroBatch> micro_batches, const engine::AttentionIo& io);
  // The entries of the micro-batch's rows go into their pages.
  void Store(int64_t layer, size_t micro_batch);
  // The same; then outputs from queries and pages.
  void Run(int64_t layer, size_t micro_batch);

 private:
  // Rows of the step, of which only cosine and sine are there.
  model::RowsView View(const engine::MicroBatch& batch) const;

  const model::ModelWeights& weights_;
  const model::EngineContext context_;
  const model::Rope rope_;
  model::AttentionBuffers buffers_;
  const model::Buffer<float> cosine_;  // [max_rows, rope_.pairs()]
  const model::Buffer<float> sine_;    // the same
  std::span<const engine::MicroBatch> micro_batches_;
  engine::AttentionIo io_;
};

}  // namespace moestro::decode
