// The kernels of common/kernels/cpu/avx_vnni, compiled for CPUs that have vpdpbusd in AVX-512 only: the same source and
// instructions in another encoding. Contracts: common/kernels/cpu/kernels.h.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/input_coding.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::avx_vnni {

void EncodeInputsInEvex(InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out);
void LinearCodedInEvex(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                       int64_t y_stride, int64_t row_begin, int64_t row_end, bool add);

}  // namespace moestro::avx_vnni
