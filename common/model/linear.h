// Linear layers spread over the worker pool by groups of 64 output rows; each NUMA domain computes the groups that are
// its own (EvenPart), where the weight store has placed them. How they are spread never shows in the result.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/math.h"
#include "common/model/context.h"
#include "common/tensor/packed_matrix.h"

namespace moestro {

// x: BF16 [rows, stride], `stride` in numbers.
struct LinearInput {
  const uint16_t* x = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
};

// Numbers from one row of a BF16 linear input to the next: an odd number of cache lines. Rows a multiple of many lines
// apart (16384 numbers of attention output are 512 lines) would share so few sets of the caches that they evict each
// other.
constexpr int64_t RowStride(int64_t width) {
  constexpr int64_t kLine = 32;
  return (CeilDiv(width, kLine) / 2 * 2 + 1) * kLine;
}

struct LinearJob {
  const PackedMatrix& weights;
  LinearInput input;
  float* output = nullptr;  // F32 [input.rows, weights.rows]
};

// Row groups of a linear that one task computes at most.
inline constexpr int64_t kMaxTaskGroups = 4;

inline int64_t RowGroups(const PackedMatrix& weights) { return PaddedRows(weights.rows) / kRowGroup; }

// How many neighbouring row groups a task computes, of `groups` that `threads` share: several, whose inputs are then
// read from memory once and whose weights the kernels may read side by side, but never so many that workers are left
// without.
int64_t TaskGroups(int64_t groups, int threads);

// Which of `rows` outputs task number `task` computes, if tasks of `task_groups` row groups each cover `groups`.
IndexRange TaskRows(int64_t rows, IndexRange groups, int64_t task, int64_t task_groups);

// Outputs `rows` of the matrix (they begin with a row group), F32 [input.rows, rows.size()]. Runs on the calling
// thread.
inline void LinearRows(const CpuKernels& kernels, const PackedMatrix& weights, const LinearInput& input,
                       IndexRange rows, float* output) {
  kernels.linear(weights, input.x, input.stride, input.rows, output, rows.size(), rows.begin, rows.end);
}

// All jobs at once, so that small matrices do not leave workers idle.
void RunLinears(const EngineContext& context, std::span<const LinearJob> jobs);

// residual[row] += W x[row]; residual: F32 [rows, weights.rows].
void AddLinear(const EngineContext& context, const PackedMatrix& weights, const LinearInput& input, float* residual);

}  // namespace moestro
