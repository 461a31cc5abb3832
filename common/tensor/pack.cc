// Works in chunks of 64 rows x 64 bytes: reads one cache line of every row, writes 4 KiB of consecutive packed bytes.
// Uses only SSE2 (baseline x86-64): the layout is a transpose of 16-bit pairs (FP8) or 32-bit pairs (BF16, F16).
#include "common/tensor/pack.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace moestro {
namespace {

constexpr int64_t kLine = 64;                       // bytes of one row in a chunk
constexpr int64_t kChunkBytes = kRowGroup * kLine;  // bytes of a chunk, source and destination alike
constexpr int64_t kStep = 256;                      // packed bytes of 4 FP8 or 2 16-bit inputs x 64 rows
constexpr int64_t kPrefetchLines = 2;               // prefetch distance in each row

__m128i Load(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
void Store(uint8_t* p, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }

// 4 rows x 16 inputs -> 4 lanes of 4 rows x 4 inputs, a step apart. 16-bit units: two neighbouring inputs.
void PackFp8Lanes(const uint8_t* src, int64_t stride, uint8_t* dst) {
  const __m128i a = Load(src), b = Load(src + stride), c = Load(src + 2 * stride), d = Load(src + 3 * stride);
  const __m128i ab_low = _mm_unpacklo_epi16(a, b), ab_high = _mm_unpackhi_epi16(a, b);
  const __m128i cd_low = _mm_unpacklo_epi16(c, d), cd_high = _mm_unpackhi_epi16(c, d);
  Store(dst, _mm_unpacklo_epi32(ab_low, cd_low));
  Store(dst + kStep, _mm_unpackhi_epi32(ab_low, cd_low));
  Store(dst + 2 * kStep, _mm_unpacklo_epi32(ab_high, cd_high));
  Store(dst + 3 * kStep, _mm_unpackhi_epi32(ab_high, cd_high));
}

// 4 rows x 8 inputs -> 4 lanes of 4 rows x 2 inputs, a step apart. 32-bit units: two neighbouring inputs.
void Pack16BitLanes(const uint8_t* src, int64_t stride, uint8_t* dst) {
  const __m128i a = Load(src), b = Load(src + stride), c = Load(src + 2 * stride), d = Load(src + 3 * stride);
  const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
  const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
  Store(dst, _mm_unpacklo_epi64(ab_low, cd_low));
  Store(dst + kStep, _mm_unpackhi_epi64(ab_low, cd_low));
  Store(dst + 2 * kStep, _mm_unpacklo_epi64(ab_high, cd_high));
  Store(dst + 3 * kStep, _mm_unpackhi_epi64(ab_high, cd_high));
}

// 4 rows x 16 inputs -> 4 lanes of 4 rows x 4 inputs, a step apart. The same, with inputs 1 and 2 of 4 exchanged.
void PackI8Lanes(const uint8_t* src, int64_t stride, uint8_t* dst) {
  Pack16BitLanes(src, stride, dst);
  const __m128i outer = _mm_set1_epi32(static_cast<int>(0xff0000ff));
  for (int64_t step = 0; step < 4; ++step) {
    const __m128i lane = Load(dst + step * kStep);
    const __m128i up = _mm_and_si128(_mm_slli_epi32(lane, 8), _mm_set1_epi32(0xff0000));
    const __m128i down = _mm_and_si128(_mm_srli_epi32(lane, 8), _mm_set1_epi32(0xff00));
    Store(dst + step * kStep, _mm_or_si128(_mm_and_si128(lane, outer), _mm_or_si128(up, down)));
  }
}

// Packs 64 rows x 64 bytes, row stride `stride` bytes, into kChunkBytes at dst.
template <void (*kPackLanes)(const uint8_t*, int64_t, uint8_t*)>
void PackChunk(const uint8_t* src, int64_t stride, uint8_t* dst) {
  for (int64_t row = 0; row < kRowGroup; row += 4) {
    const uint8_t* rows = src + row * stride;
    for (int64_t r = 0; r < 4; ++r) {
      _mm_prefetch(reinterpret_cast<const char*>(rows + r * stride) + kPrefetchLines * kLine, _MM_HINT_T0);
    }
    for (int64_t part = 0; part < 4; ++part) {
      kPackLanes(rows + part * 16, stride, dst + part * 4 * kStep + row * 4);
    }
  }
}

// Packs `bytes` (at most 64) of each of `rows` rows through a zero-padded copy; writes the first `dst_bytes`.
template <void (*kPackLanes)(const uint8_t*, int64_t, uint8_t*)>
void PackEdge(const uint8_t* src, int64_t stride, int64_t rows, int64_t bytes, uint8_t* dst, int64_t dst_bytes) {
  alignas(64) uint8_t padded[kChunkBytes] = {};
  alignas(64) uint8_t packed[kChunkBytes];
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(padded + row * kLine, src + row * stride, static_cast<size_t>(bytes));
  }
  PackChunk<kPackLanes>(padded, kLine, packed);
  std::memcpy(dst, packed, static_cast<size_t>(dst_bytes));
}

template <void (*kPackLanes)(const uint8_t*, int64_t, uint8_t*)>
void PackGroup(const uint8_t* src, int64_t stride, int64_t rows, int64_t row_bytes, int64_t packed_bytes,
               uint8_t* dst) {
  int64_t begin = 0;
  if (rows == kRowGroup) {
    for (; begin + kLine <= row_bytes; begin += kLine)
      PackChunk<kPackLanes>(src + begin, stride, dst + begin * kRowGroup);
  }
  for (; begin < row_bytes; begin += kLine) {
    const int64_t done = begin * kRowGroup;
    PackEdge<kPackLanes>(src + begin, stride, rows, std::min(kLine, row_bytes - begin), dst + done,
                         std::min(kChunkBytes, packed_bytes - done));
  }
}

}  // namespace

void PackRows(DType dtype, const uint8_t* src, int64_t src_row_bytes, int64_t rows_in_group, int64_t cols,
              uint8_t* dst_group) {
  MOE_CHECK(rows_in_group >= 1 && rows_in_group <= kRowGroup);
  MOE_CHECK(!IsBlockFormat(dtype) && dtype != DType::kF32);
  const int64_t row_bytes = cols * DTypeBytes(dtype);
  const int64_t packed_bytes = PackedBytes(dtype, kRowGroup, cols);
  if (dtype == DType::kF8E4M3) {
    PackGroup<PackFp8Lanes>(src, src_row_bytes, rows_in_group, row_bytes, packed_bytes, dst_group);
  } else if (dtype == DType::kI8) {
    PackGroup<PackI8Lanes>(src, src_row_bytes, rows_in_group, row_bytes, packed_bytes, dst_group);
  } else {
    PackGroup<Pack16BitLanes>(src, src_row_bytes, rows_in_group, row_bytes, packed_bytes, dst_group);
  }
}

bool FindExceptions(const uint8_t* packed_group, int64_t cols, uint32_t* exceptions) {
  // Doubling a code drops its sign: zero and subnormals become 0..14, normal numbers 16..252, NaN 254.
  constexpr int kMaxSubnormal = 14;
  const __m128i nan = _mm_set1_epi8(static_cast<char>(0xfe));
  const __m128i max_subnormal = _mm_set1_epi8(kMaxSubnormal);
  __m128i all_greatest = _mm_setzero_si128();
  const int64_t steps = PaddedCols(cols) / 4;
  std::fill_n(exceptions, (steps + 31) / 32, 0);
  for (int64_t step = 0; step < steps; ++step) {
    const uint8_t* codes = packed_group + step * kStep;
    __m128i least = nan;
    __m128i greatest = _mm_setzero_si128();
    for (int64_t i = 0; i < kStep; i += 16) {
      const __m128i code = Load(codes + i);
      const __m128i twice = _mm_add_epi8(code, code);
      least = _mm_min_epu8(least, twice);
      greatest = _mm_max_epu8(greatest, twice);
    }
    const __m128i is_small = _mm_cmpeq_epi8(_mm_min_epu8(least, max_subnormal), least);
    const __m128i is_nan = _mm_cmpeq_epi8(greatest, nan);
    const bool any = _mm_movemask_epi8(_mm_or_si128(is_small, is_nan)) != 0;
    exceptions[step / 32] |= static_cast<uint32_t>(any) << (step % 32);
    all_greatest = _mm_max_epu8(all_greatest, greatest);
  }
  return _mm_movemask_epi8(_mm_cmpeq_epi8(all_greatest, nan)) != 0;
}

void FindCompensation(const uint8_t* packed_group, int64_t cols, int32_t* compensation) {
  const int64_t steps = PackedGroupBytes(DType::kI8, cols) / kStep;
  int32_t sums[kRowGroup] = {};
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t row = 0; row < kRowGroup; ++row) {
      const uint8_t* codes = packed_group + step * kStep + row * 4;
      for (int64_t i = 0; i < 4; ++i) sums[row] += static_cast<int8_t>(codes[i]);
    }
  }
  for (int64_t row = 0; row < kRowGroup; ++row) compensation[row] = -128 * sums[row];
}

}  // namespace moestro
