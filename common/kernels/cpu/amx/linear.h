// Linear for any number of tokens. Tiles: that of tiles.h, or the tests' model.
#pragma once

#include "common/kernels/cpu/amx/bf16.h"
#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/fp8_few_tokens.h"
#include "common/kernels/cpu/amx/fp8_gemm.h"
#include "common/kernels/cpu/amx/gemv.h"

namespace moestro::amx {

template <typename Tiles>
static inline void Multiply(const Problem& p, int64_t row_end) {
  if (p.tokens == 0) return;  // a tile must have rows
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

}  // namespace moestro::amx
