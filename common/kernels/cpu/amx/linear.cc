#include "common/kernels/cpu/amx/linear.h"

#include "common/kernels/cpu/amx/kernels.h"
#include "common/kernels/cpu/amx/tiles.h"

namespace moestro::amx {

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end) {
  Multiply<Tiles>({w, x, x_stride, tokens, y, y_stride, row_begin, /*add=*/false}, row_end);
}

void LinearAdd(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
               int64_t row_begin, int64_t row_end) {
  Multiply<Tiles>({w, x, x_stride, tokens, y, y_stride, row_begin, /*add=*/true}, row_end);
}

void LinearCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add) {
  MultiplyCoded<Tiles>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

}  // namespace moestro::amx
