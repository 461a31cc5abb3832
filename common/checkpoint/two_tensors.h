// A weight that a checkpoint keeps as two tensors, or three: its codes of four or eight bits, the scales of groups of
// inputs or of rows, and the zero points of groups. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/checkpoint/quantization.h"
#include "common/checkpoint/safetensors_header.h"
#include "common/tensor/dtype.h"

namespace moestro::checkpoint {

// What follows the weight's name in the names of these. G groups fill a row.
//   _packed, I32: [rows, cols / 8], eight codes a word, the first input lowest, stored as value + 8; scales BF16 or F16
//                 [rows, G]; zero points I32 [ceil(rows / 8), G], eight rows a word, the first lowest, stored as value
//                 + 8
//   _packed, U8:  [rows, cols / 2], two E2M1 codes a byte, the first input lowest; scales U8 (E8M0) [rows, cols / 32]
//   _blocks, U8:  [experts, rows, cols / 32, 16], bytes as before; scales U8 [experts, rows, cols / 32]. An expert's
//                 gate and up are one matrix: gate has the even rows, up the odd ones
//   (nothing), I8: [rows, cols], or [experts, rows, cols]; scales F32, BF16 or F16, the same without columns or with 1
// And in the place of "weight" at its end:
//   qweight, I32: of AWQ [cols, rows / 8], eight rows a word, lowest first 0 2 4 6 1 3 5 7; of GPTQ [cols / 8, rows],
//                 eight inputs a word, the first lowest; scales F16 or BF16 [G, rows]; qzeros I32 [G, rows / 8], eight
//                 rows a word, of AWQ in the same order, of GPTQ the first lowest, less 1 but in gptq_v2; of GPTQ g_idx
//                 I32 [cols]: the group of each input
struct TwoTensors {
  const char* codes;
  const char* scales;
  const char* zeros = nullptr;
  bool in_blocks = false;
  bool by_row = false;
  bool by_input = false;

  // The name of the tensor with such an end.
  std::string Name(const std::string& weight, const char* end) const;
};
inline constexpr TwoTensors kPacked = {.codes = "_packed", .scales = "_scale", .zeros = "_zero_point"};
inline constexpr TwoTensors kByInput = {.codes = "qweight", .scales = "scales", .zeros = "qzeros", .by_input = true};
inline constexpr char kGroupOfInput[] = "g_idx";
inline constexpr TwoTensors kBlocks = {.codes = "_blocks", .scales = "_scales", .in_blocks = true};
inline constexpr TwoTensors kByRow = {.codes = "", .scales = "_scale", .by_row = true};
// The most columns of I8 codes: sums of products of 8 bits each stay within 32 bits (255 * 128 * 65536 < 2^31).
inline constexpr int64_t kMaxInt8Columns = 65536;
// Of scales of FP8 and I8: exact in F32.
inline constexpr const char* kScaleDTypes[] = {"F32", "BF16", "F16"};
// Beside kPacked: rows and columns once more, which the shape of the codes has said.
inline constexpr const char* kPackedShape = "_shape";

// The headers of a weight's tensors; null: absent, which codes and scales are not.
struct PartsOfWeight {
  const TensorInfo* codes = nullptr;
  const TensorInfo* scales = nullptr;
  const TensorInfo* zeros = nullptr;
  const TensorInfo* group_of_input = nullptr;
};

struct TwoTensorsCheck {
  DType dtype = DType::kMXFP4;  // of the rows, unless there is a problem
  int64_t group = 0;            // of INT4: inputs that share a scale
  std::string problem = {};     // empty: none
  const char* end = nullptr;    // of the name of the tensor that has the problem; null: the codes
};

// Whether the parts have a form above for a weight of this shape, one that `quantization` admits. Reads headers only.
TwoTensorsCheck CheckTwoTensors(const TwoTensors& form, const std::vector<int64_t>& shape, const PartsOfWeight& parts,
                                const Quantization& quantization);

// Of a message: "[64, 2]".
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace moestro::checkpoint
