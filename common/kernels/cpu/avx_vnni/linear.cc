#include "common/kernels/cpu/avx_vnni/kernels.h"
#include "common/kernels/cpu/avx_vnni/linear_coded.h"

namespace moestro::avx_vnni {

void EncodeInputs(InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out) { Encode(coding, x, cols, out); }

void LinearCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add) {
  Multiply(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

}  // namespace moestro::avx_vnni
