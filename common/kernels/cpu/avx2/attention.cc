#include "common/kernels/cpu/avx2/kernels.h"
#include "common/kernels/cpu/avx2/simd.h"

namespace moestro::avx2 {

constexpr int64_t kStepBytes = 256;  // packed BF16 matrix: 2 columns x 64 rows
constexpr int64_t kWords = 16;       // BF16 values in a vector

static inline void StoreInts(uint8_t* p, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }

// Loads the first min(16, n) elements at p; the others are zero and not read. n <= 0: none.
static inline __m256i LoadWords(const uint16_t* p, int64_t n) {
  if (n >= kWords) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  alignas(32) uint16_t words[kWords] = {};
  for (int64_t i = 0; i < n; ++i) words[i] = p[i];
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
}

// rows[r] holds 8 pairs of row r; pairs[p] becomes pair p of 8 rows: a transpose of 32-bit units.
static inline void Transpose(const __m256i (&rows)[8], __m256i (&pairs)[8]) {
  __m256i a[8], b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // 2 x 2
    a[2 * i] = _mm256_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {  // 4 x 4 inside each lane: b[4 i + c] holds columns c and 4 + c of rows 4 i .. 4 i + 3
    b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    pairs[c] = _mm256_permute2x128_si256(b[c], b[4 + c], 0x20);
    pairs[4 + c] = _mm256_permute2x128_si256(b[c], b[4 + c], 0x31);
  }
}

void PackKeys(const uint16_t* kv, int64_t stride, int64_t tokens, int64_t dim, uint8_t* keys) {
  const int64_t pairs = PaddedCols(dim) / 2;
  for (int64_t i = 0; i < dim; i += kWords) {
    const int64_t pairs_here = pairs - i / 2 < 8 ? pairs - i / 2 : 8;
    for (int64_t row = 0; row < kRowGroup; row += 8) {
      __m256i rows[8], columns[8];
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r) {
        const int64_t t = row + r;
        rows[r] = LoadWords(kv + t * stride + i, t < tokens ? dim - i : 0);
      }
      Transpose(rows, columns);
      uint8_t* out = keys + i / 2 * kStepBytes + row * 4;
      for (int64_t p = 0; p < pairs_here; ++p) StoreInts(out + p * kStepBytes, columns[p]);
    }
  }
}

void PackValues(const uint16_t* kv, int64_t stride, int64_t tokens, int64_t dim, int64_t first, int64_t columns,
                uint8_t* values) {
  for (int64_t t = 0; t < kAttentionBlock; t += 2) {
    for (int64_t i = 0; i < PaddedRows(dim); i += kWords) {
      const uint16_t* source = kv + t * stride + i;
      const __m256i even = LoadWords(source, t < tokens ? dim - i : 0);
      const __m256i odd = LoadWords(source + stride, t + 1 < tokens ? dim - i : 0);
      const __m256i low = _mm256_unpacklo_epi16(even, odd);   // rows 0..3 and 8..11
      const __m256i high = _mm256_unpackhi_epi16(even, odd);  // rows 4..7 and 12..15
      uint8_t* out =
          values + i / kRowGroup * kRowGroup * columns * 2 + (first + t) / 2 * kStepBytes + i % kRowGroup * 4;
      StoreInts(out, _mm256_permute2x128_si256(low, high, 0x20));
      StoreInts(out + 32, _mm256_permute2x128_si256(low, high, 0x31));
    }
  }
}

// The greatest of 8 lanes.
static inline float Greatest(__m256 v) {
  __m128 greatest = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  greatest = _mm_max_ps(greatest, _mm_movehl_ps(greatest, greatest));
  return _mm_cvtss_f32(_mm_max_ss(greatest, _mm_movehdup_ps(greatest)));
}

float SoftmaxStep(const float* scores, int64_t tokens, int64_t columns, float scale, SoftmaxState* state,
                  uint16_t* weights) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  const __m256 factor = _mm256_set1_ps(scale);
  __m256 greatest = lowest;
  for (int64_t t = 0; t < tokens; t += kLanes) {
    const __m256 product = _mm256_mul_ps(LoadFirst(scores + t, tokens - t), factor);
    const __m256 mask = _mm256_castsi256_ps(FirstLanes(tokens - t));
    greatest = _mm256_max_ps(greatest, _mm256_blendv_ps(lowest, product, mask));
  }
  const float old_max = state->max_score;
  const float block_max = Greatest(greatest);
  const float new_max = block_max > old_max ? block_max : old_max;
  const __m256 shift = _mm256_set1_ps(new_max);
  __m256 sum = _mm256_setzero_ps();
  for (int64_t t = 0; t < columns; t += kLanes) {
    const __m256 mask = _mm256_castsi256_ps(FirstLanes(tokens - t));
    const __m256 scaled = _mm256_mul_ps(LoadFirst(scores + t, tokens - t), factor);
    const __m256 weight = _mm256_and_ps(mask, Exp(_mm256_sub_ps(scaled, shift)));
    const __m128i rounded = RoundToBf16(weight);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(weights + t), rounded);
    sum = _mm256_add_ps(sum, Widen(rounded));
  }
  const float rescale = _mm256_cvtss_f32(Exp(_mm256_set1_ps(old_max - new_max)));
  state->max_score = new_max;
  state->sum = __builtin_fmaf(state->sum, rescale, Sum(sum));
  return rescale;
}

}  // namespace moestro::avx2
