// Inputs of linear layers in FP8, as checkpoints with FP8 weights and dynamic activations are published. Each 128
// inputs of a token share a scale:
//   scale = max|x| / 448; code = x / scale, rounded to the nearest E4M3, ties to even; both quotients are F32
// 128 zeros have scale 0 and codes 0. Those with an infinity or NaN have scale NaN and codes 0. The CPU kernels have
// the same codes and scales (common/kernels/cpu/fp8_span.h).
#pragma once

#include <cstdint>

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

inline constexpr int64_t kFp8Span = 128;

constexpr int64_t Fp8Spans(int64_t cols) { return (cols + kFp8Span - 1) / kFp8Span; }
// A row: the codes, padded with zeros to whole spans, then an F32 scale for each span. A multiple of 16.
constexpr int64_t Fp8RowBytes(int64_t cols) { return Fp8Spans(cols) * kFp8Span + (Fp8Spans(cols) + 3) / 4 * 16; }

struct EncodeFp8Args {
  const uint16_t* x =
      nullptr;           // BF16 [rows, x_stride], of which the first `cols` elements are read; aligned to 8 bytes
  int64_t x_stride = 0;  // a multiple of 4
  int64_t rows = 0;
  int64_t cols = 0;
  uint8_t* out = nullptr;           // [rows, Fp8RowBytes(cols)], aligned to 16 bytes
  const int32_t* row_of = nullptr;  // for each row of `out`, its row of x; null: the same row
  // Only rows [*begin, *end) of `out`, at most `rows`, known on the device alone; null: the first `rows`.
  const int32_t* begin = nullptr;
  const int32_t* end = nullptr;
};
// kInvalidArgument if a requirement is violated.
LaunchResult LaunchEncodeFp8(const EncodeFp8Args& args, Stream stream);

}  // namespace moestro::cuda
