// One warp runs one wrapper of ptx.cuh, or four warps one of wgmma.cuh, and writes each lane's result: on a GPU and on
// the model of it.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

// a: [32 lanes, 4], b: [32, 2], d: [32, 4], initially operand C.
LaunchResult ProbeMmaBf16(const uint32_t* a, const uint32_t* b, float* d);
LaunchResult ProbeMmaE4M3(const uint32_t* a, const uint32_t* b, float* d);
LaunchResult ProbeMmaS8(const uint32_t* a, const uint32_t* b, int32_t* d);

// rows: [32, 8] 16-bit elements; lane l points to row order[l]. registers: [32, 4].
LaunchResult ProbeLoadMatrix(const uint16_t* rows, const int32_t* order, bool transposed, uint32_t* registers);

// Lane l copies valid_bytes[l] bytes of the 16 at from + 16 l; to: [32, 16].
LaunchResult ProbeCopyAsync(const uint8_t* from, const int32_t* valid_bytes, uint8_t* to);
// The same of 4 bytes at from + 4 l; to: [32, 4].
LaunchResult ProbeCopyAsync4(const uint8_t* from, const int32_t* valid_bytes, uint8_t* to);

// The same of 8 bytes at from + 8 l; to: [32, 8].
LaunchResult ProbeCopyAsync8(const uint8_t* from, const int32_t* valid_bytes, uint8_t* to);

// D [64, columns] = A B, plus C with `add`. a: [128 lanes, 4]; rows: [columns, 128 bytes], of which B has bytes 32 part
// .. 32 part + 31; d: [128 lanes, columns / 2], initially operand C.
LaunchResult ProbeProductE4M3(int columns, const uint32_t* a, const uint8_t* rows, int part, bool add, float* d);
// 64 columns. Transposed: rows are [64, 64 columns], of which B is rows 16 part .. 16 part + 15.
LaunchResult ProbeProductBf16(bool transposed, const uint32_t* a, const uint8_t* rows, int part, bool add, float* d);

// n elements each.
LaunchResult ProbePackBf16(const float* low, const float* high, int64_t n, uint32_t* out);
LaunchResult ProbePackE4M3(const float* low, const float* high, int64_t n, uint32_t* out);
LaunchResult ProbeFmaBf16x2(const uint32_t* a, const uint32_t* b, const uint32_t* c, int64_t n, uint32_t* out);
LaunchResult ProbeMaxAbsBf16x2(const uint32_t* a, const uint32_t* b, int64_t n, uint32_t* out);
LaunchResult ProbeExp2(const float* x, int64_t n, float* out);
// Of the four codes of i in 0 .. 255, in bytes i, 255 - i, i ^ 0x55 and i ^ 0xaa: the first two expanded, the last two,
// AreNanE4M3, and the signs of MayBeNanE4M3.
LaunchResult ProbeExpandE4M3(uint32_t* out);

}  // namespace moestro::cuda
