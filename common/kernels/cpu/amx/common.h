// Shared by the kernels for one and for several tokens.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/tensor/packed_matrix.h"

namespace moestro::amx {

constexpr int64_t kStepInputs = 32;  // per tile product: summed in two chains, then added to the block's sum
constexpr int64_t kStepQuads = kStepInputs / 4;
constexpr int kBlockSteps = kScaleBlock / kStepInputs;
constexpr int64_t kTileTokens = 16;
constexpr int kGroupTiles = 4;                    // of a row group
constexpr int64_t kUnitTokens = 2 * kTileTokens;  // tokens that share tiles of weights, if there are enough
constexpr int64_t kPairBytes = 256;               // a group's two BF16 inputs, or four FP8 inputs
constexpr int64_t kPageBytes = 4096;
// Weights are prefetched into L2 far enough ahead for DRAM, and into L1 from there. FP8 GEMV from DRAM, one row group
// after another, reaches 0.84 of the read bandwidth. Either prefetch alone reaches 0.64 to 0.82; so does a single
// prefetch to L1 at 4 to 8 KiB, which occupies the few line buffers of L1 during the DRAM access.
constexpr int64_t kNearBytes = 1024;
constexpr int64_t kFarBytes = 4096;

static inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

[[gnu::always_inline]] static inline void PrefetchNear(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}
[[gnu::always_inline]] static inline void PrefetchFar(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}

// The offset of the i-th kPairBytes of 32 KiB (and of the next, and so on) if its 8 pages take turns.
constexpr int64_t kSpreadPages = 8;
constexpr int64_t kSpreadPairs = kSpreadPages * kPageBytes / kPairBytes;
[[gnu::always_inline]] static inline int64_t Spread(int64_t i) {
  const int64_t in_turn = static_cast<int64_t>(static_cast<uint64_t>(i) % kSpreadPairs);
  return i - in_turn + in_turn % kSpreadPages * (kPageBytes / kPairBytes) + in_turn / kSpreadPages;
}

// For tiles: the L2 prefetch address while the kPairBytes at `pair` are used, in the next 32 KiB, in that order. From
// DRAM, FP8 weights are multiplied up to 1.3 times as fast as with a distance of 4 KiB, BF16 weights 1.1 times.
[[gnu::always_inline]] static inline const uint8_t* SpreadAhead(const uint8_t* pair) {
  const int64_t i = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pair) / kPairBytes);
  return pair + (kSpreadPairs + Spread(i) - i) * kPairBytes;
}

// far_bytes: of Problem; 0: prefetch only the matrix itself.
[[gnu::always_inline]] static inline const uint8_t* FarPair(const uint8_t* pair, int64_t far_bytes) {
  return far_bytes == 0 ? SpreadAhead(pair) : pair + far_bytes;
}

// The call's arguments (kernels.h).
struct Problem {
  const PackedMatrix& w;
  const uint16_t* x;
  int64_t x_stride;
  int64_t tokens;
  float* y;
  int64_t y_stride;
  int64_t row_begin;
  bool add;

  float* output(int64_t token, int64_t row) const { return y + token * y_stride + (row - row_begin); }
  bool is_fp8() const { return w.dtype == DType::kF8E4M3; }
  int64_t column_bytes() const { return is_fp8() ? 1 : 2; }
  int64_t blocks() const { return CeilDiv(w.cols, kScaleBlock); }
  int64_t cols(int64_t block) const { return Min(kScaleBlock, w.cols - block * kScaleBlock); }
  const uint8_t* weights(int64_t row, int64_t block) const {
    return w.data + column_bytes() * (row * PaddedCols(w.cols) + block * kScaleBlock * kRowGroup);
  }
  float scale(int64_t row, int64_t block) const {
    return is_fp8() ? w.scales[row / kScaleBlock * blocks() + block] : 1.0f;
  }
  // FP8: bit i covers inputs 4 i .. 4 i + 3 of the block; set unless all codes of the row group there are normal
  // numbers.
  uint32_t exceptions(int64_t row, int64_t block) const {
    return w.exceptions == nullptr ? ~0u : w.exceptions[row / kRowGroup * blocks() + block];
  }
  // Distance from weights in use to their L2 prefetch; `ahead`: the distance if only the matrix itself is prefetched.
  int64_t far_bytes(int64_t ahead) const { return w.prefetch == nullptr ? ahead : w.prefetch - w.data; }
};

namespace {  // for internal linkage of the members

// Memory prefetched into L2 during other computation, a piece of each of 8 pages in turn (SpreadAhead).
class PendingPairs {
 public:
  PendingPairs() = default;
  PendingPairs(const uint8_t* begin, int64_t pairs) : begin_(begin), pairs_(pairs) {}

  [[gnu::always_inline]] inline void Fetch(int64_t pairs) {
    for (; pairs > 0 && next_ < pairs_; --pairs, ++next_) {
      const bool whole = next_ - next_ % kSpreadPairs + kSpreadPairs <= pairs_;
      const uint8_t* pair = begin_ + (whole ? Spread(next_) : next_) * kPairBytes;
#pragma GCC unroll 4
      for (int64_t line = 0; line < kPairBytes; line += 64) PrefetchFar(pair + line);
    }
  }

 private:
  const uint8_t* begin_ = nullptr;
  int64_t pairs_ = 0;
  int64_t next_ = 0;
};

// Tile products treat denormals as zeros and produce none. During this object's lifetime, so do this thread's vector
// instructions.
class FlushDenormals {
 public:
  FlushDenormals() { _mm_setcsr(saved_ | _MM_FLUSH_ZERO_ON | kDenormalsAreZero); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kDenormalsAreZero = 0x40;
  unsigned saved_ = _mm_getcsr();
};

}  // namespace

static inline __mmask16 FirstLanes(int64_t n) { return static_cast<__mmask16>((1u << Min(16, n)) - 1); }

// The memory from which a tile of inputs is loaded.
struct TileInputs {
  const uint16_t* x;
  int64_t stride;  // bytes
};

// One token's inputs of a block, padded with zeros to a whole step.
static inline void CopyInputs(const uint16_t* x, int64_t cols, uint16_t* to) {
  for (int64_t i = 0; i < cols; i += kStepInputs) {
    const auto mask = static_cast<__mmask32>(cols - i >= kStepInputs ? ~0u : (1u << (cols - i)) - 1);
    _mm512_store_si512(to + i, _mm512_maskz_loadu_epi16(mask, x + i));
  }
}

// Stores one token's totals of at most a row group to the call's output.
static inline void StoreTotals(const float* totals, int64_t rows, bool add, float* out) {
  for (int64_t r = 0; r < rows; r += 16) {
    const __mmask16 lanes = FirstLanes(rows - r);
    __m512 sum = _mm512_load_ps(totals + r);
    if (add) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, out + r));
    _mm512_mask_storeu_ps(out + r, lanes, sum);
  }
}

}  // namespace moestro::amx
