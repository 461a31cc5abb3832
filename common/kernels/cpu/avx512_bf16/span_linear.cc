// Formats of blocks with coded inputs as in common/kernels/cpu/avx512_vnni, with VBMI to expand codes.
#include "common/kernels/cpu/avx512_vnni/span_linear.h"

#include "common/kernels/cpu/avx512_bf16/kernels.h"

namespace moestro::avx512_bf16 {
namespace {

struct VbmiSpans : avx512_vnni::VnniSpans {
  [[gnu::always_inline]] static inline Words LookUp(const spans::ByteTable& table, Words words) {
    // The permutation looks at six bits of an index: the entries lie there four times.
    const __m512i entries = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table.bytes)));
    return reinterpret_cast<Words>(_mm512_permutexvar_epi8(reinterpret_cast<__m512i>(words), entries));
  }
  template <int kPlace>
  [[gnu::always_inline]] static inline Words FifthBits(Words words) {
    // Byte i becomes eight bits from bit byte i of this on.
    constexpr uint64_t kFirst = 0x3230222012100200 + 0x0101010101010101 * ((kPlace + 60) % 64);
    const __m512i from = _mm512_set1_epi64(static_cast<long long>(kFirst & 0x3f3f3f3f3f3f3f3f));
    return reinterpret_cast<Words>(_mm512_multishift_epi64_epi8(from, reinterpret_cast<__m512i>(words)));
  }
};

}  // namespace

void LinearSpans(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add) {
  avx512_vnni::LinearSpans<VbmiSpans>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

}  // namespace moestro::avx512_bf16
