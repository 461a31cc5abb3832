#include "loadtest/bench/baselines/fp8_convert.h"

#include <immintrin.h>

#include "common/kernels/cpu/amx/fp8.h"
#include "common/kernels/cpu/avx512_bf16/fp8.h"

namespace moestro::bench {

// A code is S EEEE MMM with bias 7. Its BF16 is S FFFFFFFF MMM0000 with bias 127: F = E + 120.
constexpr int kBias = 120 << 7;

struct Fp8Values {
  alignas(64) int32_t of_code[256];
};
static constexpr Fp8Values MakeValues() {
  Fp8Values values{};
  for (int code = 0; code < 256; ++code) {
    values.of_code[code] = (code & 0x80) << 8 | avx512_bf16::E4M3MagnitudeToBf16(code & 0x7f);
  }
  return values;
}
static constexpr Fp8Values kValues = MakeValues();

static inline void Store(uint16_t* out, __m512i values) { _mm512_storeu_si512(out, values); }

void Fp8ByGather(const Fp8Codes& codes, uint16_t* out) {
  for (int64_t i = 0; i < codes.count; i += 16) {
    const __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes.codes + i)));
    const __m512i values = _mm512_i32gather_epi32(index, kValues.of_code, 4);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtepi32_epi16(values));
  }
}

namespace {

// What the arithmetic forms share: 32 codes as words, their signs in place, their magnitudes if they are normal.
struct WideCodes {
  explicit WideCodes(const uint8_t* codes)
      : code(_mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)))),
        magnitude(_mm512_and_si512(code, _mm512_set1_epi16(0x7f))),
        sign(_mm512_slli_epi16(_mm512_and_si512(code, _mm512_set1_epi16(0x80)), 8)),
        normal(_mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(kBias))) {}

  __m512i code, magnitude, sign, normal;
};

}  // namespace

void Fp8ByArithmetic(const Fp8Codes& codes, uint16_t* out) {
  // Subnormals are m * 2^-9 for m = 1 .. 7; with zero, 8 values.
  alignas(64) uint16_t small[32] = {};
  for (int m = 0; m < 8; ++m) small[m] = static_cast<uint16_t>(kValues.of_code[m]);
  const __m512i subnormals = _mm512_load_si512(small);
  for (int64_t i = 0; i < codes.count; i += 32) {
    const WideCodes wide(codes.codes + i);
    const __mmask32 is_small = _mm512_cmplt_epu16_mask(wide.magnitude, _mm512_set1_epi16(8));
    const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(wide.magnitude, _mm512_set1_epi16(0x7f));
    __m512i value = _mm512_mask_permutexvar_epi16(wide.normal, is_small, wide.magnitude, subnormals);
    value = _mm512_mask_mov_epi16(value, is_nan, _mm512_set1_epi16(0x7fc0));
    Store(out + i, _mm512_or_si512(value, wide.sign));
  }
}

void Fp8Skipping(const Fp8Codes& codes, uint16_t* out) {
  for (int64_t i = 0; i < codes.count; i += 32) {
    const WideCodes wide(codes.codes + i);
    const __mmask32 is_nonzero = _mm512_test_epi16_mask(wide.magnitude, wide.magnitude);
    Store(out + i, _mm512_or_si512(_mm512_maskz_mov_epi16(is_nonzero, wide.normal), wide.sign));
  }
}

void Fp8ByByteTables(const Fp8Codes& codes, uint16_t* out) {
  const avx512_bf16::Fp8Expander expander = avx512_bf16::MakeFp8Expander();
  for (int64_t i = 0; i < codes.count; i += 64) {
    __m512i first, second;
    avx512_bf16::Expand(expander, codes.codes + i, &first, &second);
    Store(out + i, first);
    Store(out + i + 32, second);
  }
}

void Fp8ByBitMatrices(const Fp8Codes& codes, uint16_t* out) {
  for (int64_t step = 0; step < codes.count / kFp8Step; ++step) {
    const bool any = (codes.exceptions[step / 32] >> (step % 32) & 1) != 0;
    for (int64_t i = step * kFp8Step; i < (step + 1) * kFp8Step; i += 64) {
      __m512i first, second;
      const __m512i tile = _mm512_loadu_si512(codes.codes + i);
      if (any) {
        amx::ExpandAny(tile, &first, &second);
      } else {
        amx::ExpandNormal(tile, &first, &second);
      }
      Store(out + i, first);
      Store(out + i + 32, second);
    }
  }
}

}  // namespace moestro::bench
