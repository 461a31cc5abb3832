// Linear layers, distributed over the worker pool by groups of 64 output rows. Each NUMA domain computes its own groups
// (EvenPart), where the weight store has placed them. The distribution does not affect the result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "common/base/math.h"
#include "common/model/context.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::model {

// BF16 [rows, stride], `stride` in elements; beside or instead of them the same rows in codes.
struct LinearInput {
  const uint16_t* x = nullptr;  // null only if all weights take `coding`
  int64_t stride = 0;
  int64_t rows = 0;
  InputCoding coding = InputCoding::kNone;
  const uint8_t* coded = nullptr;  // coded rows, CodedRowBytes(coding, columns of the weights) apart
};

// Widest coded row, in bytes, that a task may code for itself.
inline constexpr int64_t kMaxTaskCodes = int64_t{256} << 10;

// How these weights take their inputs: the one place where the process's setting is applied. Rows wider than
// kMaxTaskCodes stay BF16; no I8 weights have them.
inline InputCoding InputsOf(const CpuKernels& kernels, const PackedMatrix& weights) {
  const InputCoding coding = weights.dtype == DType::kF8E4M3 && kernels.fp8_activations
                                 ? InputCoding::kFp8
                                 : CodingOf(weights.dtype, kernels.int8_activations);
  return CodedRowBytes(coding, weights.cols) <= kMaxTaskCodes ? coding : InputCoding::kNone;
}

// Room for a row of `cols` inputs in any coding, or in BF16: a multiple of kCodedRowAlignment.
constexpr int64_t MostCodedBytes(int64_t cols) {
  return std::max({CodedRowBytes(InputCoding::kRow, cols), CodedRowBytes(InputCoding::kSpans, cols),
                   CodedRowBytes(InputCoding::kFp8, cols)});
}

// Writes `cols` BF16 inputs of a row in codes, at most CodedRowBytes(coding, cols).
void EncodeRow(const CpuKernels& kernels, InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out);

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

// Runs `run` once for each task of the matrix, on the pool, each worker on rows of its domain.
void ForTaskRows(const EngineContext& context, const PackedMatrix& weights,
                 absl::FunctionRef<void(IndexRange rows)> run);

// Outputs `rows` of the matrix, starting at a row group: y[i][n - rows.begin] = sum, or += sum if `add`. Weights that
// take codes get those of the input; if it has none, its rows are coded for this call, with the same bits. Runs on the
// calling thread.
void MultiplyRows(const CpuKernels& kernels, const PackedMatrix& weights, const LinearInput& input, IndexRange rows,
                  float* y, int64_t y_stride, bool add = false);

// The same as F32 [input.rows, rows.size()].
inline void LinearRows(const CpuKernels& kernels, const PackedMatrix& weights, const LinearInput& input,
                       IndexRange rows, float* output) {
  MultiplyRows(kernels, weights, input, rows, output, rows.size());
}

// The input with its rows in codes too, if the weights take codes. `room`: MostCodedBytes(weights.cols) for each row.
LinearInput CodeInputs(const EngineContext& context, const PackedMatrix& weights, LinearInput input, uint8_t* room);

// Runs all jobs at once, so that small matrices do not leave workers idle. `room`: MostCodedBytes of the widest input
// for each row; many rows are then coded once, before the products. Null: every task codes them.
void RunLinears(const EngineContext& context, std::span<const LinearJob> jobs, uint8_t* room = nullptr);

// residual[row] += W x[row]; residual: F32 [rows, weights.rows].
void AddLinear(const EngineContext& context, const PackedMatrix& weights, const LinearInput& input, float* residual,
               uint8_t* room = nullptr);

}  // namespace moestro::model
