// Linear for any number of tokens. Tiles: that of tiles.h, or the tests' model.
#pragma once

#include "common/kernels/cpu/amx/bf16.h"
#include "common/kernels/cpu/amx/block_gemv.h"
#include "common/kernels/cpu/amx/blocks.h"
#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/fp8_few_tokens.h"
#include "common/kernels/cpu/amx/fp8_gemm.h"
#include "common/kernels/cpu/amx/gemv.h"
#include "common/kernels/cpu/amx/linear_i8.h"

namespace moestro::amx {

template <typename Tiles>
static inline void Multiply(const Problem& p, int64_t row_end) {
  if (p.tokens == 0) return;  // a tile must have rows
  if (IsBlockFormat(p.w.dtype)) {
    return p.tokens <= kBlockVectorTokens ? MultiplyBlocksByVectors(p, row_end) : MultiplyBlocks<Tiles>(p, row_end);
  }
  const FlushDenormals flush;
  if (GoesByVectors(p)) {
    MultiplyByVectors(p, p.row_begin, row_end);
  } else if (!p.is_fp8()) {
    MultiplyBf16<Tiles>(p, p.row_begin, row_end);
  } else if (p.tokens <= kTileTokens) {
    MultiplyFewTokens<Tiles>(p, p.row_begin, row_end);
  } else {
    MultiplyTokens<Tiles>(p, p.row_begin, row_end);
  }
}

// The arguments of linear_coded (kernels.h).
template <typename Tiles>
static inline void MultiplyCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                                 int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  if (w.dtype == DType::kI8) {
    MultiplyI8<Tiles>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
  } else {
    MultiplyBlocksCoded<Tiles>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
  }
}

}  // namespace moestro::amx
