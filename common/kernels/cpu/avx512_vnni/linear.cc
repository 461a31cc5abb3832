// Coded inputs by vpdpbusd. INT8 weights: unsigned codes of inputs (+ 128) times signed weights. Formats of blocks:
// span_linear.h.
#include <immintrin.h>

#include "common/kernels/cpu/avx512_vnni/kernels.h"
#include "common/kernels/cpu/avx512_vnni/span_linear.h"
#include "common/kernels/cpu/coded_span.h"
#include "common/kernels/cpu/linear_i8.h"

namespace moestro::avx512_vnni {
namespace {

struct VnniI8 {
  using Vector = __m512i;
  using Weights = __m512i;
  using Inputs = __m512i;
  using Codes = uint8_t;
  static constexpr int64_t kLanes = 16;
  static constexpr bool kPairsFirst = true;
  static constexpr bool kCompensated = true;
  static constexpr int VectorsAtOnce(int) { return 4; }

  [[gnu::always_inline]] static inline Codes FromCode(int32_t code) { return static_cast<Codes>(code + 128); }
  [[gnu::always_inline]] static inline Vector Zero() { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static inline Vector Load(const int32_t* p) { return _mm512_load_si512(p); }
  [[gnu::always_inline]] static inline void Store(int32_t* p, Vector v) { _mm512_store_si512(p, v); }
  [[gnu::always_inline]] static inline void Prefetch(const uint8_t* p) { avx512::Prefetch(p); }
  [[gnu::always_inline]] static inline void PrefetchFar(const uint8_t* p) { avx512::PrefetchFar(p); }
  [[gnu::always_inline]] static inline Weights LoadWeights(const uint8_t* p) { return _mm512_load_si512(p); }
  [[gnu::always_inline]] static inline Inputs LoadInputs(const Codes* codes) {
    int32_t four;
    __builtin_memcpy(&four, codes, sizeof four);
    return _mm512_set1_epi32(four);
  }
  [[gnu::always_inline]] static inline Vector Dot(Vector sum, Weights weights, Inputs inputs) {
    return _mm512_dpbusd_epi32(sum, inputs, weights);
  }
};

}  // namespace

void EncodeInputs(InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out) {
  if (coding == InputCoding::kSpans) return EncodeSpans(x, cols, out);
  linear_i8::EncodeRow<VnniI8>(x, cols, out);
}

void LinearCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add) {
  if (w.dtype != DType::kI8)
    return LinearSpans<VnniSpans>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
  linear_i8::LinearCoded<VnniI8>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

}  // namespace moestro::avx512_vnni
