// Inputs of linear layers as 8-bit codes, for products whose sums are integers. Plain data only: per-ISA sources
// include this header.
//
//   kRow    a token's inputs share a scale, max|x| / 127: for I8 weights (W8A8, as such checkpoints are published)
//   kSpans  each 128 inputs of a token share a scale: for formats of blocks, an approximation that computes faster
//   kFp8    the same in FP8: for FP8 weights, as such checkpoints are published (fp8_inputs.h)
//
// A coded row is one piece of memory, which may be copied. Each kernel table has a form of its own inside of it, so
// only the functions of one table may write and read a row. Rows in FP8 have one form for all of them.
#pragma once

#include <cstdint>

#include "common/tensor/dtype.h"

namespace moestro {

enum class InputCoding { kNone, kRow, kSpans, kFp8 };

// Which weights are multiplied by codes of their inputs.
enum class Int8Activations {
  kPublished,  // I8 weights, as they are published
  kAll,        // formats of blocks too
  kBf16,       // none: inputs stay BF16
};

// Of the codes by which weights of this type can be multiplied. kNone: these weights take BF16 inputs only.
constexpr InputCoding CodingOf(DType type) {
  if (type == DType::kI8) return InputCoding::kRow;
  return IsBlockFormat(type) ? InputCoding::kSpans : InputCoding::kNone;
}

// The same under a setting.
constexpr InputCoding CodingOf(DType type, Int8Activations setting) {
  const InputCoding coding = CodingOf(type);
  const bool taken = coding == InputCoding::kRow ? setting != Int8Activations::kBf16 : setting == Int8Activations::kAll;
  return taken ? coding : InputCoding::kNone;
}

// ggml codes 32 inputs at once for weights of 8 bits, 256 for K-quants. One length for all formats keeps one form of
// coded rows: 128 is a multiple of every sub-block (16 to 128 weights), and rounds finer than 256.
inline constexpr int64_t kCodeSpan = 128;
inline constexpr int64_t kCodedRowAlignment = 64;

// Bytes that a row of `cols` inputs takes at most, in any table: a multiple of kCodedRowAlignment.
constexpr int64_t CodedRowBytes(InputCoding coding, int64_t cols) {
  constexpr int64_t kWord = 2;  // the widest code
  switch (coding) {
    case InputCoding::kRow:
      return kCodedRowAlignment + (cols + 63) / 64 * 64 * kWord;
    case InputCoding::kSpans:
      return (cols + kCodeSpan - 1) / kCodeSpan * (kCodeSpan + kCodedRowAlignment);
    case InputCoding::kFp8: {
      const int64_t spans = (cols + kCodeSpan - 1) / kCodeSpan, scales = spans * 4;
      return spans * kCodeSpan * kWord + (scales + kCodedRowAlignment - 1) / kCodedRowAlignment * kCodedRowAlignment;
    }
    default:
      return 0;
  }
}

}  // namespace moestro
