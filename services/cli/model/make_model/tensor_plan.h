// The tensors of a checkpoint: names, types and shapes as published, and the recipe for their values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/tensor/dtype.h"
#include "services/cli/model/make_model/config_files.h"

namespace moestro::cli {

enum class Recipe {
  kFp8Codes,     // F8_E4M3: random codes
  kBlockScales,  // F32 [ceil(rows / 128), ceil(cols / 128)]: deviation * [0.5, 1.5) / kCodeStdDev
  kDequantised,  // BF16: the product of kFp8Codes and kBlockScales of the same weight, rounded
  kNormal,       // BF16 or F32: mean + deviation * (about normal, bounded by 3.47)
  // Of the values of kDequantised before they are rounded, in groups of 32 (four_bits.h):
  kInt4Codes,    // I32 [rows, cols / 8]
  kInt4Scales,   // BF16 [rows, cols / 32]
  kMxfp4Codes,   // U8 [rows, cols / 2]
  kMxfp4Scales,  // U8 [rows, cols / 32]
  kShape,        // I64 [2]: rows and columns
  kInt4ZCodes,   // I32 [rows, cols / 8], of weights with zero points
  kInt4ZScales,  // F16 [rows, cols / 32]
  kInt4Zeros,    // I32 [ceil(rows / 8), cols / 32]: eight rows a word, the first lowest
  // The same with outputs as columns:
  kAwqCodes,      // I32 [cols, rows / 8]: eight rows a word, lowest first 0 2 4 6 1 3 5 7
  kGptqCodes,     // I32 [cols / 8, rows]
  kInputScales,   // F16 [cols / 32, rows]
  kAwqZeros,      // I32 [cols / 32, rows / 8]: as kAwqCodes
  kGptqZeros,     // I32 [cols / 32, rows / 8]: eight rows a word, the first lowest, less 1 modulo 16
  kGroupOfInput,  // I32 [cols]: i / 32
  // Of the same values, by row: code = value / scale, rounded to nearest even; scale = max|value| / 127, or 1 of a row
  // of zeros, in the tensor's type.
  kInt8Codes,   // I8 [rows, cols]
  kInt8Scales,  // BF16 or F32 [rows, 1]
};

struct PlannedTensor {
  std::string name;
  DType dtype = DType::kBF16;  // unless the recipe says otherwise
  std::vector<int64_t> shape;  // row-major, up to three dimensions
  Recipe recipe = Recipe::kNormal;
  // The name that seeds the values: `name`, except for the copies of embedding and head in the prediction layer.
  std::string key;
  double mean = 0;
  double deviation = 0;
  int64_t rows = 0;  // of the weight that a recipe after kNormal is a part of
  int64_t cols = 0;

  const char* dtype_name() const;  // in the spelling of safetensors
  int64_t element_bytes() const;
  int64_t elements() const;
  int64_t bytes() const { return elements() * element_bytes(); }
};

// In checkpoint order: embedding, layers ascending, final norm, head, prediction layer. A weight's scales follow it.
std::vector<PlannedTensor> PlanTensors(const MadeModel& model);

}  // namespace moestro::cli
