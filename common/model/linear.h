// Linear layers spread over the worker pool by groups of 64 output rows; each NUMA domain computes the groups that are
// its own (EvenPart), where the weight store has placed them. How they are spread never shows in the result.
#pragma once

#include <cstdint>
#include <span>

#include "common/model/context.h"
#include "common/tensor/packed_matrix.h"

namespace moestro {

// x: BF16 [rows, stride], `stride` in numbers.
struct LinearInput {
  const uint16_t* x = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
};

struct LinearJob {
  const PackedMatrix& weights;
  LinearInput input;
  float* output = nullptr;  // F32 [input.rows, weights.rows]
};

inline int64_t RowGroups(const PackedMatrix& weights) { return PaddedRows(weights.rows) / kRowGroup; }

// Outputs in row group `group` (64, fewer in the last).
int64_t GroupWidth(const PackedMatrix& weights, int64_t group);

// Outputs of one row group, F32 [input.rows, 64]. Runs on the calling thread.
void LinearGroup(const CpuKernels& kernels, const PackedMatrix& weights, const LinearInput& input, int64_t group,
                 float* output);

// All jobs at once, so that small matrices do not leave workers idle.
void RunLinears(EngineContext& context, std::span<const LinearJob> jobs);

// residual[row] += W x[row]; residual: F32 [rows, weights.rows].
void AddLinear(EngineContext& context, const PackedMatrix& weights, const LinearInput& input, float* residual);

}  // namespace moestro
