// A weight that a checkpoint keeps as two tensors: its codes of four or eight bits, and the scales of groups of inputs
// or of rows. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/checkpoint/quantization.h"
#include "common/checkpoint/safetensors_header.h"
#include "common/tensor/dtype.h"

namespace moestro::checkpoint {

// What follows the weight's name in the names of the two.
//   _packed, I32: [rows, cols / 8], eight codes a word, the first input lowest, stored as value + 8; scales BF16
//                 [rows, cols / group]
//   _packed, U8:  [rows, cols / 2], two E2M1 codes a byte, the first input lowest; scales U8 (E8M0) [rows, cols / 32]
//   _blocks, U8:  [experts, rows, cols / 32, 16], bytes as before; scales U8 [experts, rows, cols / 32]. An expert's
//                 gate and up are one matrix: gate has the even rows, up the odd ones
//   (nothing), I8: [rows, cols], or [experts, rows, cols]; scales F32, BF16 or F16, the same without columns or with 1
struct TwoTensors {
  const char* codes;
  const char* scales;
  bool in_blocks = false;
  bool by_row = false;
};
inline constexpr TwoTensors kPacked = {.codes = "_packed", .scales = "_scale"};
inline constexpr TwoTensors kBlocks = {.codes = "_blocks", .scales = "_scales", .in_blocks = true};
inline constexpr TwoTensors kByRow = {.codes = "", .scales = "_scale", .by_row = true};
// The most columns of I8 codes: sums of products of 8 bits each stay within 32 bits (255 * 128 * 65536 < 2^31).
inline constexpr int64_t kMaxInt8Columns = 65536;
// Of scales of FP8 and I8: exact in F32.
inline constexpr const char* kScaleDTypes[] = {"F32", "BF16", "F16"};
// Beside kPacked: rows and columns once more, which the shape of the codes has said.
inline constexpr const char* kPackedShape = "_shape";

struct TwoTensorsCheck {
  DType dtype = DType::kMXFP4;  // of the rows, unless there is a problem
  std::string problem = {};     // empty: none
  bool of_scales = false;       // the problem is one of the scales, else of the codes
};

// Whether the two have a form above for a weight of this shape, one that `quantization` admits. Reads headers only.
TwoTensorsCheck CheckTwoTensors(const TwoTensors& form, const std::vector<int64_t>& shape, const TensorInfo& codes,
                                const TensorInfo& scales, const Quantization& quantization);

// Of a message: "[64, 2]".
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace moestro::checkpoint
