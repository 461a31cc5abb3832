// Runs a linear layer's kernel over the matrices of the weight pool as the engine does: tasks of one or several groups
// of 64 outputs, taken by any free worker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loadtest/bench/benchmark.h"

namespace moestro::bench {

// All types of weights that `linear` computes. The first two are measured in all shapes.
inline constexpr DType kWeightTypes[] = {DType::kF8E4M3, DType::kBF16,   DType::kF16,    DType::kQ8_0,
                                         DType::kQ4_0,   DType::kQ5_0,   DType::kQ4K,    DType::kQ5K,
                                         DType::kQ6K,    DType::kI4G32,  DType::kI4G128, DType::kMXFP4,
                                         DType::kI4Z32,  DType::kI4Z128, DType::kQ4_1,   DType::kQ5_1};
// As a row's name begins; in lower case, as a benchmark's.
std::string WeightsName(DType dtype);
// Scales of a linear layer's weights; empty for types without.
std::vector<float> ScalesOf(DType dtype, const Shape& shape);

// BF16, or coded before all runs (input_coding.h), for weights that take codes.
enum class WalkInputs { kBf16, kCoded };
// WeightsName(dtype), and that inputs are coded, before a separator.
std::string WalkName(DType dtype, WalkInputs inputs);

class LinearWalk {
 public:
  // REQUIRES: context.weights was prepared for `dtype` and outlives this, as does `context`.
  LinearWalk(BenchContext& context, DType dtype, const Shape& shape, int64_t tokens, WalkInputs inputs);
  // The same over other weights, which were prepared for `dtype` and outlive this. dtype may be kI8, if shape.cols is a
  // multiple of 64.
  LinearWalk(BenchContext& context, const WeightPool& weights, DType dtype, const Shape& shape, int64_t tokens,
             WalkInputs inputs);

  // Multiplies matrices [begin, begin + count) of the pool, modulo their number, with the same inputs. One run of the
  // worker pool.
  void Run(int64_t begin, int64_t count);

 private:
  PackedMatrix Matrix(int64_t i) const;
  struct alignas(kCodedRowAlignment) CodedLine {
    uint8_t bytes[kCodedRowAlignment];
  };

  BenchContext& context_;
  const WeightPool& weights_;
  Shape shape_;
  int64_t tokens_;
  std::vector<float> scales_;          // of FP8 and I8, of all matrices
  std::vector<int32_t> compensation_;  // of I8, of each matrix
  std::vector<uint16_t> inputs_;
  int64_t coded_stride_ = 0;
  std::vector<CodedLine> coded_;             // the inputs, if they are to be coded
  int64_t groups_;                           // of 64 outputs, in a matrix
  std::vector<std::vector<float>> outputs_;  // by worker: outputs of a task, overwritten by the next
};

}  // namespace moestro::bench
