// Routed experts on the CPU workers, weights read where they lie.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/kernels.h"
#include "common/model/activations.h"
#include "common/model/binding.h"
#include "common/model/moe_progress.h"
#include "common/platform/worker_pool.h"
#include "services/decode/overlap/compute.h"

namespace moestro {

class CpuExperts final : public RoutedExperts {
 public:
  // All outlive it. max_rows: of one call.
  CpuExperts(const ModelSpec& spec, const ModelWeights& weights, const CpuKernels& kernels, WorkerPool& pool,
             int64_t max_rows);
  void Run(int64_t layer, int64_t count, const HandOver& rows) override;

 private:
  const ModelSpec& spec_;
  const ModelWeights& weights_;
  const CpuKernels& kernels_;
  WorkerPool& pool_;
  const int64_t max_rows_;
  Activations activations_;
  MoeProgress progress_;
};

}  // namespace moestro
