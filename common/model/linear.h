// Linear layers, distributed over the worker pool by groups of 64 output rows. Each NUMA domain computes its own groups
// (EvenPart), where the weight store has placed them. The distribution does not affect the result.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/math.h"
#include "common/model/context.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::model {

// x: BF16 [rows, stride], `stride` in elements.
struct LinearInput {
  const uint16_t* x = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
};

// Elements between rows of a BF16 linear input: an odd number of cache lines. Rows a multiple of many lines apart
// (16384 elements of attention output are 512 lines) would share few cache sets and evict each other.
constexpr int64_t RowStride(int64_t width) {
  constexpr int64_t kLine = 32;
  return (CeilDiv(width, kLine) / 2 * 2 + 1) * kLine;
}

struct LinearJob {
  const PackedMatrix& weights;
  LinearInput input;
  float* output = nullptr;  // F32 [input.rows, weights.rows]
};

// Maximum row groups of a linear layer per task.
inline constexpr int64_t kMaxTaskGroups = 4;

inline int64_t RowGroups(const PackedMatrix& weights) { return PaddedRows(weights.rows) / kRowGroup; }

// Neighbouring row groups per task, for `groups` shared by `threads`. Several groups read the inputs from memory once,
// and kernels may read their weights side by side. Their number never leaves workers idle.
int64_t TaskGroups(int64_t groups, int threads);

// The outputs of task `task`, out of `rows`, if tasks of `task_groups` row groups each cover `groups`.
IndexRange TaskRows(int64_t rows, IndexRange groups, int64_t task, int64_t task_groups);

// Computes outputs `rows` of the matrix, starting at a row group, as F32 [input.rows, rows.size()]. Runs on the calling
// thread.
inline void LinearRows(const CpuKernels& kernels, const PackedMatrix& weights, const LinearInput& input,
                       IndexRange rows, float* output) {
  kernels.linear(weights, input.x, input.stride, input.rows, output, rows.size(), rows.begin, rows.end);
}

// Runs all jobs at once, so that small matrices do not leave workers idle.
void RunLinears(const EngineContext& context, std::span<const LinearJob> jobs);

// residual[row] += W x[row]; residual: F32 [rows, weights.rows].
void AddLinear(const EngineContext& context, const PackedMatrix& weights, const LinearInput& input, float* residual);

}  // namespace moestro::model
