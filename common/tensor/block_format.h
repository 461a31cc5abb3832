// Formats in which a few neighbouring inputs of a row share a scale: those of GGUF, and four-bit integers and MXFP4 of
// safetensors. Plain data only: per-ISA sources include this header.
//
// As a row: blocks of `row_block` inputs, row_block_bytes each, one after the other.
//   Q8_0, Q4_0, Q5_0, Q4_1, Q5_1, Q4_K, Q5_K, Q6_K, MXFP4: ggml's block, byte by byte.
//   I4_32, I4_128: a BF16 scale, then the codes, two in a byte, the first one in the low half.
//   I4Z_32, I4Z_128: the same with 32 bits instead of the scale: its F32, which ends with 13 zeros for every F16 and
//   BF16, and the zero point 0..15 in bits 0-3. The weight is scale * (code - zero point).
//
// Packed: rows in groups of 64, four tiles of 16; 64 bytes are always the 16 rows of a tile, 32 bits each. The inputs
// of a group lie in blocks of `block` inputs: a header with the scales of all 64 rows, then the codes. Missing rows and
// inputs are zeros, header and codes, and so stand for zero in each format. One stream, in the order of its use:
//
//   [rows/64][cols/block] { header | codes }
//
//   8 bits: [block/4][4 tiles][16 rows][4 bytes]: inputs 0 2 1 3
//   4 bits: [block/8][4 tiles][16 rows][8 nibbles]: inputs 0 2 4 6 1 3 5 7, from bit 0 up
//   5 bits: [block/32][4 tiles] { [4][16 rows][8 nibbles] of inputs 0-7, 8-15, 16-23, 24-31 | [16 rows][32 bits] }: the
//           fifth bit of input 8 u + 2 p + h is bit 16 h + 4 u + p
//   6 bits: [block/16][4 tiles] { [2][16 rows][8 nibbles] of inputs 0-7, 8-15 | [16 rows][4 bytes] }: bits 4 and 5 of
//           input 8 u + i are bits 2 f and 2 f + 1 of byte n / 2, with n the nibble of input i and f = 2 u + n % 2
//
// So the 16-bit halves of 32 bits, shifted by 0, 4, 8, 12, are pairs of inputs 01, 23, 45, 67 (vpermw makes them
// operands of vdpbf16ps), and the low and high nibbles of its bytes are inputs 0 4 1 5 and 2 6 3 7 (operands of
// vpdpbusd). Headers, by tile:
//
//   Q8_0, Q4_0, Q5_0   F16 scales [4 sub-blocks][16 rows]
//   Q4_1, Q5_1         [4 sub-blocks] { F16 scales [16 rows] | F16 mins [16 rows], which are subtracted }
//   I4_32              BF16 scales [2][16 rows][2]: sub-blocks 0 1, then 2 3
//   I4_128             BF16 scales [16 rows]
//   MXFP4              E8M0 scales [16 rows][4 sub-blocks]
//   I4Z_32, I4Z_128    scales with zero points [4 sub-blocks or 1][16 rows]
//   Q4_K, Q5_K         d [16 rows] F16, dmin [16 rows] F16, then the 12 bytes of a row's 6-bit scales and mins, in
//                      ggml's order: [3][16 rows][4 bytes]
//   Q6_K               first d [64 rows] F16 of all tiles; then by tile scales [4][16 rows][4 sub-blocks], signed
#pragma once

#include <cstdint>

#include "common/tensor/dtype.h"

namespace moestro {

inline constexpr int64_t kRowGroup = 64;  // rows packed together
inline constexpr int64_t kTileRows = 16;  // rows of one 64-byte tile

struct BlockFormat {
  int64_t block = 0;      // inputs behind one header of the packed form; a multiple of row_block and sub_block
  int64_t sub_block = 0;  // inputs that share a scale
  int64_t code_bits = 0;
  int64_t header_bytes = 0;  // of 64 rows
  int64_t row_block = 0;     // inputs of a block of a row; columns are a multiple of it
  int64_t row_block_bytes = 0;
  bool has_mins = false;  // the weight is scale * code - min, else scale * (code - a constant)

  constexpr int64_t sub_blocks() const { return block / sub_block; }
  constexpr int64_t packed_block_bytes() const { return header_bytes + block * kRowGroup * code_bits / 8; }
};

// REQUIRES: IsBlockFormat(type).
constexpr BlockFormat FormatOf(DType type) {
  switch (type) {
    case DType::kQ8_0:
      return {128, 32, 8, 512, 32, 34};
    case DType::kQ4_0:
      return {128, 32, 4, 512, 32, 18};
    case DType::kQ5_0:
      return {128, 32, 5, 512, 32, 22};
    case DType::kQ4K:
      return {256, 32, 4, 1024, 256, 144, true};
    case DType::kQ5K:
      return {256, 32, 5, 1024, 256, 176, true};
    case DType::kQ6K:
      return {256, 16, 6, 1152, 256, 210};
    case DType::kI4G32:
      return {128, 32, 4, 512, 32, 18};
    case DType::kI4G128:
      return {128, 128, 4, 128, 128, 66};
    case DType::kMXFP4:
      return {128, 32, 4, 256, 32, 17};
    case DType::kI4Z32:
      return {128, 32, 4, 1024, 32, 20, true};
    case DType::kI4Z128:
      return {128, 128, 4, 256, 128, 68, true};
    case DType::kQ4_1:
      return {128, 32, 4, 1024, 32, 20, true};
    case DType::kQ5_1:
      return {128, 32, 5, 1024, 32, 24, true};
    default:
      return {};
  }
}

// I4Z's 32 bits beside the codes of a sub-block.
inline constexpr uint32_t kScaleOfI4Z = 0xffffe000, kZeroOfI4Z = 15;

constexpr bool HasZeroPoints(DType type) { return type == DType::kI4Z32 || type == DType::kI4Z128; }

// A block of a row begins with its F16 scale, which is all that the packed header has of it but for an F16 min.
constexpr bool HasF16Scales(DType type) {
  return type == DType::kQ8_0 || type == DType::kQ4_0 || type == DType::kQ5_0 || type == DType::kQ4_1 ||
         type == DType::kQ5_1;
}

// Four-bit codes, two in a byte in the order of inputs.
constexpr bool HasNibblesInOrder(DType type) {
  return type == DType::kI4G32 || type == DType::kI4G128 || HasZeroPoints(type);
}

// Whether rows of `cols` weights can have this type.
constexpr bool HasWholeBlocks(DType type, int64_t cols) {
  return !IsBlockFormat(type) || cols % FormatOf(type).row_block == 0;
}

// Bytes of `cols` weights of a row, not packed. REQUIRES: HasWholeBlocks(type, cols).
constexpr int64_t RowBytes(DType type, int64_t cols) {
  if (!IsBlockFormat(type)) return cols * DTypeBytes(type);
  const BlockFormat format = FormatOf(type);
  return cols / format.row_block * format.row_block_bytes;
}

// Returns f(), with the type as the template argument of its operator(). REQUIRES: IsBlockFormat(type).
template <typename F>
[[gnu::always_inline]] static inline auto WithFormat(DType type, F f) {
  switch (type) {
    case DType::kQ8_0:
      return f.template operator()<DType::kQ8_0>();
    case DType::kQ4_0:
      return f.template operator()<DType::kQ4_0>();
    case DType::kQ5_0:
      return f.template operator()<DType::kQ5_0>();
    case DType::kQ4_1:
      return f.template operator()<DType::kQ4_1>();
    case DType::kQ5_1:
      return f.template operator()<DType::kQ5_1>();
    case DType::kQ4K:
      return f.template operator()<DType::kQ4K>();
    case DType::kQ5K:
      return f.template operator()<DType::kQ5K>();
    case DType::kQ6K:
      return f.template operator()<DType::kQ6K>();
    case DType::kI4G32:
      return f.template operator()<DType::kI4G32>();
    case DType::kI4G128:
      return f.template operator()<DType::kI4G128>();
    case DType::kI4Z32:
      return f.template operator()<DType::kI4Z32>();
    case DType::kI4Z128:
      return f.template operator()<DType::kI4Z128>();
    default:
      return f.template operator()<DType::kMXFP4>();
  }
}

}  // namespace moestro
