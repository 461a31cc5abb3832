#include "common/kernels/cpu/avx2/kernels.h"
#include "common/kernels/cpu/avx2/linear_isa.h"
#include "common/kernels/cpu/coded_span.h"

namespace moestro::avx2 {

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end) {
  linear_f32::Linear<Avx2Isa>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/false);
}

void LinearAdd(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
               int64_t row_begin, int64_t row_end) {
  linear_f32::Linear<Avx2Isa>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/true);
}

void EncodeInputs(InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out) {
  if (coding == InputCoding::kSpans) return EncodeSpans(x, cols, out);
  linear_i8::EncodeRow<Avx2I8>(x, cols, out);
}

void LinearCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add) {
  if (w.dtype != DType::kI8) {
    return spans::Linear<Avx2Spans>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
  }
  linear_i8::LinearCoded<Avx2I8>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

}  // namespace moestro::avx2
