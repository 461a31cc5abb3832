// Inputs of I8 weights as 8-bit codes (W8A8): the codes and scales of common/kernels/cpu/linear_i8.h, bit for bit. A
// coded row is its scale, F32, and from byte 16 on a code for each input, groups of four in the order 0 2 1 3 of packed
// weights, with zeros up to a multiple of 16.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

inline constexpr int64_t kInt8Header = 16;            // bytes
inline constexpr int64_t kMaxInt8Inputs = 96 * 1024;  // of a row: a block keeps their codes in shared memory

// Elements of 2 bytes between coded rows of so many inputs, at the least: a multiple of 8. From 9 inputs on a coded row
// takes no more room than its BF16 inputs.
constexpr int64_t Int8Stride(int64_t cols) { return (kInt8Header + (cols + 15) / 16 * 16) / 2; }

struct EncodeInt8Args {
  const uint16_t* x = nullptr;  // BF16 [.., x_stride], as LinearShape has it
  int64_t x_stride = 0;
  int64_t cols = 0;
  uint16_t* out = nullptr;  // [.., out_stride], aligned to 16 bytes; may be x with its stride
  int64_t out_stride = 0;   // a multiple of 8, at least Int8Stride(cols)
  int64_t rows = 0;
  // Or the rows of these tiles, as LinearGroups has them.
  const TokenTile* tiles = nullptr;
  const int32_t* first_tile = nullptr;
  const int32_t* end_tile = nullptr;
  int64_t max_tiles = 0;
};
// A row with an infinity or NaN has a scale that is not finite, so that its outputs are NaN. kInvalidArgument if a
// requirement is violated, or for more than kMaxInt8Inputs.
LaunchResult LaunchEncodeInt8(const EncodeInt8Args& args, Stream stream);

}  // namespace moestro::cuda
