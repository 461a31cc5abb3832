// Formats of blocks for the reference: one sub-block of one tile, decoded code by code as block_format.h describes it.
#pragma once

#include <cstdint>

#include "common/tensor/packed_matrix.h"

namespace moestro::ref {

// Inputs that are summed before they are scaled, for 16 rows.
struct Chain {
  int64_t cols = 0;
  float weights[kScaleBlock][kTileRows];  // [column][row], before scaling
  float scales[kTileRows];
  bool has_mins = false;
  float mins[kTileRows];  // of the scaled weights
};

// The sub-block that begins at column `col`, in a row group's tile; `type` is a format of blocks.
void DecodeSubBlock(DType type, const uint8_t* group, int64_t tile, int64_t col, Chain& chain);

}  // namespace moestro::ref
