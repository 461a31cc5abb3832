// Kernels for CPUs with AVX-VNNI besides the requirements of common/kernels/cpu/avx2 (Alder Lake and later, Zen 5 and
// later). Contracts: common/kernels/cpu/kernels.h; rules for the sources: common/kernels/README.md.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/input_coding.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::avx_vnni {

void EncodeInputs(InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out);
void LinearCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add);

}  // namespace moestro::avx_vnni
