// Formats of blocks times coded spans by vpdpbusd: unsigned codes of weights times signed codes of inputs. Few tokens
// take codes where they lie, expanded on the fly; more share a panel of bytes (common/kernels/cpu/linear_spans.h).
#include <immintrin.h>

#include "common/kernels/cpu/avx512_bf16/block_weights.h"
#include "common/kernels/cpu/avx512_bf16/kernels.h"
#include "common/kernels/cpu/linear_spans.h"

namespace moestro::avx512_bf16 {

// Tokens whose products are computed as codes are expanded.
constexpr int64_t kFewSpanTokens = 4;

namespace {  // for internal linkage of the members

struct VnniSpans {
  typedef uint32_t Words __attribute__((vector_size(64)));
  using Ints = __m512i;
  using Floats = __m512;
  using Scales = SpanScales[spans::kPanelSpans];
  static constexpr int64_t kLanes = 16;
  // 12 sums and 12 parts leave 8 of 32 registers for bytes, scales and inputs.
  static constexpr int kTokens = 3;
  static constexpr int kVectors = 4;
  static constexpr bool kSignedBytes = false;

  [[gnu::always_inline]] static inline Words LoadWords(const uint8_t* p) {
    return reinterpret_cast<Words>(_mm512_loadu_si512(p));
  }
  [[gnu::always_inline]] static inline void StoreWords(uint8_t* p, Words words) {
    _mm512_store_si512(p, reinterpret_cast<__m512i>(words));
  }
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
  [[gnu::always_inline]] static inline Words Merge(uint32_t mask, Words a, Words b) {
    constexpr int kByFirst = 0xca;  // bits of the second operand where the first has ones, else of the third
    return reinterpret_cast<Words>(_mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(mask)),
                                                             reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b),
                                                             kByFirst));
  }
  [[gnu::always_inline]] static inline void Prefetch(const uint8_t* p) { avx512_bf16::Prefetch(p + kCodesAhead); }
  [[gnu::always_inline]] static inline Ints ZeroInts() { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static inline Ints StartOf(const int32_t* p) { return _mm512_set1_epi32(*p); }
  template <int kBits>
  [[gnu::always_inline]] static inline Ints ShiftLeft(Ints v) {
    return _mm512_slli_epi32(v, kBits);
  }
  [[gnu::always_inline]] static inline Floats ToFloat(Ints v) { return _mm512_cvtepi32_ps(v); }
  [[gnu::always_inline]] static inline Floats ZeroFloats() { return _mm512_setzero_ps(); }
  [[gnu::always_inline]] static inline Floats Broadcast(float f) { return _mm512_set1_ps(f); }
  [[gnu::always_inline]] static inline Floats LoadFloats(const float* p) { return _mm512_load_ps(p); }
  [[gnu::always_inline]] static inline void StoreFloats(float* p, Floats v) { _mm512_store_ps(p, v); }
  [[gnu::always_inline]] static inline Floats Fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

  template <DType kType>
  static inline void ExpandScales(const uint8_t* header, int64_t span, int64_t slot, Scales* scales) {
    ExpandHeader<kType>(header, span, *scales + slot);
  }
  template <DType kType>
  [[gnu::always_inline]] static inline const float* ScalesOf(const Scales& scales, int64_t slot) {
    return scales[slot].scales[0];
  }
  template <DType kType>
  [[gnu::always_inline]] static inline const float* MinsOf(const Scales& scales, int64_t slot) {
    return scales[slot].mins[0];
  }

  [[gnu::always_inline]] static inline __m512i Four(const int8_t* codes) {
    int32_t four;
    __builtin_memcpy(&four, codes, sizeof four);
    return _mm512_set1_epi32(four);
  }
  template <DType kType, int kCount, int kQuads>
  [[gnu::always_inline]] static inline void AddQuads(const uint8_t* panel, const int8_t* codes, int64_t stride,
                                                     Ints (&sums)[kCount][kVectors]) {
    constexpr int kTurn = kQuads < 8 ? kQuads : 8;
#pragma GCC unroll 1
    for (int begin = 0; begin < kQuads; begin += kTurn, panel += kTurn * spans::kQuadBytes, codes += 4 * kTurn) {
#pragma GCC unroll 8
      for (int q = 0; q < kTurn; ++q) {
        KeepOrder();
        __m512i x[kCount];
#pragma GCC unroll 8
        for (int t = 0; t < kCount; ++t) x[t] = Four(codes + 4 * q + t * stride);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const __m512i bytes = _mm512_load_si512(panel + q * spans::kQuadBytes + v * 64);
#pragma GCC unroll 8
          for (int t = 0; t < kCount; ++t) sums[t][v] = _mm512_dpbusd_epi32(sums[t][v], bytes, x[t]);
        }
      }
    }
  }
};

// A group's totals of a few tokens, [kCount][64 rows], in registers span by span.
template <DType kType, int kCount>
class FewTokens {
  using U = spans::Unit<kType>;
  static constexpr BlockFormat kFormat = FormatOf(kType);
  static constexpr int kSubBlock = kFormat.sub_block;
  static constexpr int64_t kBlockSpans = kFormat.block / kCodeSpan;
  // Codes of five bits are fetched into L2: one token has 0.9 of read bandwidth instead of 0.65. Other formats lose
  // 0.1.
  static constexpr bool kFar = kFormat.code_bits == 5;

 public:
  static inline void MultiplyGroup(const uint8_t* group, int64_t spans, const spans::CodedTokens& x, float* totals) {
    SpanScales scales;
    for (int64_t span = 0; span < spans; ++span) {
      const int64_t of_block = span % kBlockSpans;
      const uint8_t* header = group + span / kBlockSpans * kFormat.packed_block_bytes();
      ExpandHeader<kType, kFar>(header, of_block, &scales);
      constexpr int64_t kSpanBytes = kCodeSpan * kRowGroup * kFormat.code_bits / 8;
      AddSpan(header + kFormat.header_bytes + of_block * kSpanBytes, scales, x, span, totals);
    }
  }

 private:
  static inline void AddSpan(const uint8_t* codes, const SpanScales& scales, const spans::CodedTokens& x, int64_t span,
                             float* totals) {
    const spans::CodedTokens tokens = x;  // in registers, despite writes through pointers
    __m512 parts[kCount][kVectors] = {};
#pragma GCC unroll 1
    for (int64_t j = 0; j < kCodeSpan / kSubBlock; ++j) {
      __m512i sums[kCount][kVectors];
#pragma GCC unroll 4
      for (int t = 0; t < kCount; ++t) {
        const __m512i start = spans::Start<VnniSpans, kType>(tokens.Span(t, span), j);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[t][v] = start;
      }
      const int8_t* inputs = tokens.Span(0, span).codes + j * kSubBlock;
#pragma GCC unroll 4
      for (int i = 0; i < kSubBlock; i += U::kInputs, codes += U::kStepBytes) {
        AddUnits(codes, inputs + i, tokens.stride, sums, spans::NumbersBelow<U::kQuads>());
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const __m512 scale = _mm512_load_ps(scales.scales[j] + v * kTileRows);
        const __m512 min = kFormat.has_mins ? _mm512_load_ps(scales.mins[j] + v * kTileRows) : scale;
#pragma GCC unroll 4
        for (int t = 0; t < kCount; ++t) {
          parts[t][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[t][v]), scale, parts[t][v]);
          if (kFormat.has_mins) {
            const __m512i minus_sum = VnniSpans::StartOf(spans::MinusSum<kType>(tokens.Span(t, span), j));
            parts[t][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(minus_sum), min, parts[t][v]);
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kCount; ++t) {
      const __m512 scale = _mm512_set1_ps(spans::SpanScale<kType>(tokens.Span(t, span)));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* total = totals + t * kRowGroup + v * kTileRows;
        _mm512_store_ps(total, _mm512_fmadd_ps(parts[t][v], scale, _mm512_load_ps(total)));
      }
    }
  }

  // The units of a group's four tiles, in the order of addresses. Lines of a unit are fetched one beside each quad.
  template <int... kQuad>
  [[gnu::always_inline]] static inline void AddUnits(const uint8_t* step, const int8_t* inputs, int64_t stride,
                                                     __m512i (&sums)[kCount][kVectors], spans::Numbers<kQuad...>) {
    constexpr int64_t kLines = U::kStepBytes / kVectors / 64;  // of a tile
    static_assert(kLines <= U::kQuads);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      (AddQuad<(kQuad < kLines)>(step + (v * kLines + kQuad) * 64, spans::GetQuad<VnniSpans, kType, kQuad>(step, v),
                                 inputs + 4 * kQuad, stride, v, sums),
       ...);
    }
  }
  template <bool kFetch>
  [[gnu::always_inline]] static inline void AddQuad(const uint8_t* line, VnniSpans::Words bytes, const int8_t* inputs,
                                                    int64_t stride, int v, __m512i (&sums)[kCount][kVectors]) {
    // Fetches in the compiler's order, or several in a row, cost one token a tenth of read bandwidth.
    KeepOrder();
    if (kFetch && kFar) PrefetchFar(line + kCodesAhead);
    if (kFetch && !kFar) VnniSpans::Prefetch(line);
#pragma GCC unroll 4
    for (int t = 0; t < kCount; ++t) {
      sums[t][v] =
          _mm512_dpbusd_epi32(sums[t][v], reinterpret_cast<__m512i>(bytes), VnniSpans::Four(inputs + t * stride));
    }
  }
};

template <DType kType, int kCount>
void MultiplyFew(const PackedMatrix& w, const spans::CodedTokens& x, float* y, int64_t y_stride, int64_t row_begin,
                 int64_t row_end, bool add) {
  const int64_t group_bytes = PackedGroupBytes(kType, w.cols);
  for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
    alignas(64) float totals[kCount * kRowGroup] = {};
    FewTokens<kType, kCount>::MultiplyGroup(w.data + row / kRowGroup * group_bytes,
                                            (w.cols + kCodeSpan - 1) / kCodeSpan, x, totals);
    spans::StoreTotals(totals, spans::Min(kRowGroup, row_end - row), kCount, y + (row - row_begin), y_stride, add);
  }
}

}  // namespace

void LinearSpans(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add) {
  if (tokens > kFewSpanTokens) {
    return spans::Linear<VnniSpans>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
  }
  spans::WithFormat(w.dtype, [&]<DType kType>() {
    const spans::CodedTokens rows{x, x_stride};
    switch (tokens) {
      case 1:
        return MultiplyFew<kType, 1>(w, rows, y, y_stride, row_begin, row_end, add);
      case 2:
        return MultiplyFew<kType, 2>(w, rows, y, y_stride, row_begin, row_end, add);
      case 3:
        return MultiplyFew<kType, 3>(w, rows, y, y_stride, row_begin, row_end, add);
      case 4:
        return MultiplyFew<kType, 4>(w, rows, y, y_stride, row_begin, row_end, add);
    }
  });
}

}  // namespace moestro::avx512_bf16
