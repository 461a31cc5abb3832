// The loops of `linear_coded` for INT8 weights and activations (W8A8), for any vector width. A token's inputs become
// 8-bit codes of one scale, max|x| / 127; sums of products of codes are exact integers. So every instruction set gives
// the same bits, as long as it computes the few F32 operations around them alike:
//   code = round to nearest even(x / scale); output = (float(sum) * the token's scale) * the row's scale
// A token with an infinity or NaN has a scale that is not finite, and so are its outputs; a token of zeros has scale 0
// and outputs 0.
//
// A coded row (input_coding.h, kRow) is its scale, F32, and from byte 64 on its codes.
//
// `Isa` is a struct of inlined static functions with internal linkage:
//   Vector, kLanes                kLanes 32-bit sums, one per row
//   Codes, FromCode(c)            the type of a code of an input, and its form of c in -127..127
//   kPairsFirst                   codes lie in the order of the packed bytes, inputs 0 2 1 3; otherwise in their own
//   kCompensated                  sums lack the matrix's compensation, as codes are c + 128
//   VectorsAtOnce(tokens)         row vectors whose sums are in registers together; a divisor of 64 / kLanes
//   Weights, LoadWeights(p)       4 inputs of kLanes rows
//   Inputs, LoadInputs(p)         4 codes for all lanes
//   Dot(sum, weights, inputs)     adds 4 products to each lane
//   Load(p), Store(p, v), Zero()
//   Prefetch(p), PrefetchFar(p)   into L1, into L2
#pragma once

#include <cstdint>

#include "common/kernels/cpu/input_coding.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::linear_i8 {

constexpr int64_t kInputs = 4;                       // of a step
constexpr int64_t kStepBytes = kInputs * kRowGroup;  // of weights
constexpr int64_t kChunk = 256;                      // inputs whose 16 KiB of weights stay in L1 for all tokens
constexpr int64_t kBlockTokens = 4;                  // tokens that share a load of weights
constexpr int64_t kMaxBatch = 128;                   // tokens whose sums are kept at once: 32 KiB
constexpr int64_t kCodeBytes = int64_t{256} << 10;   // of their codes, in L2 beside the weights
// Far enough ahead for DRAM latency at the rate one core reads, near enough to stay in L1 until used.
constexpr int64_t kPrefetchBytes = 6144;
// What a step fetches: the lines behind its own by kPrefetchBytes into L1, or so many lines of the next chunk into L2.
constexpr int kNear = -1;
constexpr int64_t kLine = 64;

static inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t Padded(int64_t cols) { return (cols + 63) / 64 * 64; }

// Rows of codes, `stride` bytes apart.
template <typename Isa>
struct CodedRows {
  const uint8_t* rows;
  int64_t stride;

  float Scale(int64_t t) const {
    float scale;
    __builtin_memcpy(&scale, rows + t * stride, sizeof scale);
    return scale;
  }
  const typename Isa::Codes* Codes(int64_t t) const {
    return reinterpret_cast<const typename Isa::Codes*>(rows + t * stride + kCodedRowAlignment);
  }
  int64_t CodeStride() const { return stride / static_cast<int64_t>(sizeof(typename Isa::Codes)); }
};

// Bytes of a row in this form: at most CodedRowBytes.
template <typename Isa>
static inline int64_t RowBytes(int64_t cols) {
  return kCodedRowAlignment + Padded(cols) * static_cast<int64_t>(sizeof(typename Isa::Codes));
}

struct Scratch {
  alignas(64) int32_t sums[kMaxBatch * kRowGroup];
};

// Writes the coded row of the n inputs at x, with Padded(n) codes.
template <typename Isa>
static inline void EncodeRow(const uint16_t* x, int64_t n, uint8_t* row) {
  auto* const codes = reinterpret_cast<typename Isa::Codes*>(row + kCodedRowAlignment);
  uint16_t greatest = 0;  // magnitudes of BF16 compare as integers; infinities and NaN are the greatest
  for (int64_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<uint16_t>(x[i] & 0x7fff);
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  const uint32_t bits = static_cast<uint32_t>(greatest) << 16;
  float scale;
  __builtin_memcpy(&scale, &bits, sizeof scale);
  scale /= 127.0f;
  const bool has_codes = greatest != 0 && greatest < 0x7f80;
  const float divisor = has_codes ? scale : 1.0f;
  // For |v| < 2^22, v + 1.5 * 2^23 has v, rounded to nearest even, in its lowest bits.
  constexpr float kRound = 0x1.8p23f;
  constexpr int32_t kRoundBits = 0x4b400000;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t wide = has_codes ? static_cast<uint32_t>(x[i]) << 16 : 0;
    float value;
    __builtin_memcpy(&value, &wide, sizeof value);
    const float rounded = value / divisor + kRound;
    int32_t code;
    __builtin_memcpy(&code, &rounded, sizeof code);
    codes[i] = Isa::FromCode(code - kRoundBits);
  }
  for (int64_t i = n; i < Padded(n); ++i) codes[i] = Isa::FromCode(0);
  if constexpr (Isa::kPairsFirst) {
    for (int64_t i = 0; i < n; i += 4) {
      uint32_t four;
      __builtin_memcpy(&four, codes + i, sizeof four);
      four = (four & 0xff0000ffu) | (four >> 8 & 0xff00u) | (four << 8 & 0xff0000u);
      __builtin_memcpy(codes + i, &four, sizeof four);
    }
  }
  __builtin_memcpy(row, &scale, sizeof scale);
}

// sums[t][r] += the products of `steps` steps from `tiles` and from codes on, for kTokens tokens and the rows of
// kVectors vectors from `first` on. Fetches kFetch lines a step from `ahead` on.
template <typename Isa, int kTokens, int kVectors, int kFetch>
[[gnu::always_inline]] static inline void AddRows(const uint8_t* tiles, int first, int64_t steps,
                                                  const typename Isa::Codes* codes, int64_t stride, int32_t* sums,
                                                  const uint8_t* ahead) {
  typename Isa::Vector acc[kTokens][kVectors];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc[t][v] = Isa::Load(sums + t * kRowGroup + (first + v) * Isa::kLanes);
  }
  tiles += first * Isa::kLanes * kInputs;
  for (int64_t step = 0; step < steps; ++step, tiles += kStepBytes, codes += kInputs) {
    typename Isa::Inputs inputs[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) inputs[t] = Isa::LoadInputs(codes + t * stride);
#pragma GCC unroll 2
    for (int line = 0; line < kFetch; ++line, ahead += kLine) Isa::PrefetchFar(ahead);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const uint8_t* tile = tiles + v * Isa::kLanes * kInputs;
      if constexpr (kFetch == kNear) {
        if (v * Isa::kLanes * kInputs % kLine == 0) Isa::Prefetch(tile + kPrefetchBytes);
      }
      const typename Isa::Weights weights = Isa::LoadWeights(tile);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) acc[t][v] = Isa::Dot(acc[t][v], weights, inputs[t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Isa::Store(sums + t * kRowGroup + (first + v) * Isa::kLanes, acc[t][v]);
  }
}

template <typename Isa, int kTokens, int kFetch>
static inline void AddTokens(const uint8_t* tiles, int64_t steps, const typename Isa::Codes* codes, int64_t stride,
                             int32_t* sums, const uint8_t* ahead) {
  constexpr int kVectors = Isa::VectorsAtOnce(kTokens);
  AddRows<Isa, kTokens, kVectors, kFetch>(tiles, 0, steps, codes, stride, sums, ahead);
  constexpr int kFetchAgain = kFetch == kNear ? kNear : 0;  // rows of the next chunk are fetched once
  for (int first = kVectors; first < kRowGroup / Isa::kLanes; first += kVectors) {
    AddRows<Isa, kTokens, kVectors, kFetchAgain>(tiles, first, steps, codes, stride, sums, ahead);
  }
}

// The same for `count` tokens, 1 <= count <= kBlockTokens.
template <typename Isa, int kFetch>
static inline void AddBlock(int64_t count, const uint8_t* tiles, int64_t steps, const typename Isa::Codes* codes,
                            int64_t stride, int32_t* sums, const uint8_t* ahead = nullptr) {
  switch (count) {
    case 1:
      return AddTokens<Isa, 1, kFetch>(tiles, steps, codes, stride, sums, ahead);
    case 2:
      return AddTokens<Isa, 2, kFetch>(tiles, steps, codes, stride, sums, ahead);
    case 3:
      return AddTokens<Isa, 3, kFetch>(tiles, steps, codes, stride, sums, ahead);
    default:
      return AddTokens<Isa, 4, kFetch>(tiles, steps, codes, stride, sums, ahead);
  }
}

// The sums of a row group for a batch of tokens.
template <typename Isa>
static inline void SumGroup(const uint8_t* group, int64_t cols, const CodedRows<Isa>& x, int64_t tokens,
                            Scratch& scratch) {
  for (int64_t i = 0; i < tokens * kRowGroup; i += Isa::kLanes) Isa::Store(scratch.sums + i, Isa::Zero());
  const int64_t stride = x.CodeStride();
  if (tokens <= kBlockTokens) {
    return AddBlock<Isa, kNear>(tokens, group, cols / kInputs, x.Codes(0), stride, scratch.sums);
  }
  // The next chunk comes from memory while the first blocks compute, so that neither waits for the other.
  constexpr int64_t kStepLines = kStepBytes / kLine;
  const bool two_lines = tokens <= 3 * kBlockTokens;
  for (int64_t col = 0; col < cols; col += kChunk) {
    const uint8_t* tiles = group + col * kRowGroup;
    const int64_t steps = Min(kChunk, cols - col) / kInputs;
    const uint8_t* const next = tiles + steps * kStepBytes;
    int64_t fetched = 0;  // lines of each step
    for (int64_t t = 0; t < tokens; t += kBlockTokens) {
      const typename Isa::Codes* codes = x.Codes(t) + col;
      int32_t* sums = scratch.sums + t * kRowGroup;
      const int64_t count = Min(kBlockTokens, tokens - t);
      const uint8_t* ahead = next + fetched * steps * kLine;
      if (fetched == kStepLines) {
        AddBlock<Isa, 0>(count, tiles, steps, codes, stride, sums);
      } else if (two_lines) {
        AddBlock<Isa, 2>(count, tiles, steps, codes, stride, sums, ahead);
        fetched += 2;
      } else {
        AddBlock<Isa, 1>(count, tiles, steps, codes, stride, sums, ahead);
        ++fetched;
      }
    }
  }
}

// Outputs of rows [row, row + rows), rows <= 64; y starts at `row`.
template <typename Isa>
static inline void Scale(const PackedMatrix& w, int64_t row, int64_t rows, const CodedRows<Isa>& x, int64_t tokens,
                         const int32_t* all_sums, float* y, int64_t y_stride, bool add) {
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t* sums = all_sums + t * kRowGroup;
    const float scale = x.Scale(t);
    float* out = y + t * y_stride;
    for (int64_t r = 0; r < rows; ++r) {
      const int32_t sum = Isa::kCompensated ? sums[r] + w.compensation[row + r] : sums[r];
      const float scaled = static_cast<float>(sum) * scale * w.scales[row + r];
      out[r] = add ? out[r] + scaled : scaled;
    }
  }
}

// `tokens` coded rows, x_stride bytes apart.
template <typename Isa>
static inline void LinearCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                               int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  static_assert(kRowGroup % Isa::kLanes == 0, "the packed layout");
  Scratch scratch;
  const int64_t cols = Padded(w.cols);
  const int64_t batch = Min(kMaxBatch, kCodeBytes / RowBytes<Isa>(w.cols));
  for (int64_t t = 0; t < tokens; t += batch) {
    const int64_t count = Min(batch, tokens - t);
    const CodedRows<Isa> rows{x + t * x_stride, x_stride};
    for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
      SumGroup<Isa>(w.data + row * cols, cols, rows, count, scratch);
      Scale<Isa>(w, row, Min(kRowGroup, row_end - row), rows, count, scratch.sums, y + t * y_stride + (row - row_begin),
                 y_stride, add);
    }
  }
}

}  // namespace moestro::linear_i8
