#include "tests/common/kernels/amx/on_model.h"

#include "common/kernels/cpu/amx/attention.h"
#include "common/kernels/cpu/amx/linear.h"
#include "tests/common/kernels/amx/tile_model.h"

namespace moestro::amx {

void LinearOnModel(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                   int64_t y_stride, int64_t row_begin, int64_t row_end) {
  Multiply<TileModel>({w, x, x_stride, tokens, y, y_stride, row_begin, /*add=*/false}, row_end);
}

void LinearAddOnModel(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                      int64_t y_stride, int64_t row_begin, int64_t row_end) {
  Multiply<TileModel>({w, x, x_stride, tokens, y, y_stride, row_begin, /*add=*/true}, row_end);
}

void LinearCodedOnModel(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                        int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  MultiplyCoded<TileModel>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

void AttendTokenOnModel(const KvBlock& kv, int64_t tokens, const TokenQueries& queries) {
  Attend<TileModel>(kv, tokens, queries);
}

}  // namespace moestro::amx
