// A four-bit weight that a checkpoint keeps as two tensors: its codes, and the scales of groups of inputs. Internal to
// this folder.
#pragma once

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
struct TwoTensors {
  const char* codes;
  const char* scales;
  bool in_blocks;
};
inline constexpr TwoTensors kPacked = {"_packed", "_scale", false};
inline constexpr TwoTensors kBlocks = {"_blocks", "_scales", true};
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
