#include "common/kernels/cpu/amx/linear.h"

#include "common/kernels/cpu/amx/kernels.h"
#include "common/kernels/cpu/amx/tiles.h"
#include "common/kernels/cpu/avx512_bf16/kernels.h"

namespace moestro::amx {

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end) {
  if (w.dtype == DType::kI8) {
    return avx512_bf16::LinearI8(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/false);
  }
  Multiply<Tiles>({w, x, x_stride, tokens, y, y_stride, row_begin, /*add=*/false}, row_end);
}

void LinearAdd(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
               int64_t row_begin, int64_t row_end) {
  if (w.dtype == DType::kI8) {
    return avx512_bf16::LinearI8(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/true);
  }
  Multiply<Tiles>({w, x, x_stride, tokens, y, y_stride, row_begin, /*add=*/true}, row_end);
}

}  // namespace moestro::amx
