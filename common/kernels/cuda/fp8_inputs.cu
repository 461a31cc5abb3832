#include <cuda_runtime.h>

#include "common/kernels/cuda/fp8_inputs.h"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/reduce.cuh"

namespace moestro::cuda {
namespace {

constexpr int kWarps = 8;               // in a block
constexpr int64_t kMostBlocks = 16384;  // their warps take several spans each
constexpr int kPerLane = static_cast<int>(kFp8Span) / 32;
constexpr float kGreatestE4M3 = 448.0f;

// The lane's inputs of a span as pairs; zeros past the last one.
__device__ __forceinline__ uint2 LoadInputs(const uint16_t* x, int64_t left) {
  if (left >= kPerLane) return *reinterpret_cast<const uint2*>(x);
  uint32_t pairs[2] = {};
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i < left) pairs[i / 2] |= uint32_t{x[i]} << (i % 2 * 16);
  }
  return make_uint2(pairs[0], pairs[1]);
}

// A warp a span.
__global__ void __launch_bounds__(32 * kWarps) EncodeFp8Kernel(EncodeFp8Args args, int64_t spans, int64_t row_bytes) {
  BeginKernel();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first_row = args.begin == nullptr ? 0 : *args.begin;
  const int64_t rows = args.end == nullptr ? args.rows : *args.end - first_row;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < rows * spans;
       i += int64_t{gridDim.x} * kWarps) {
    const int64_t row = first_row + i / spans, span = i % spans, col = span * kFp8Span + lane * kPerLane;
    const int64_t from = args.row_of == nullptr ? row : args.row_of[row];
    const uint2 x = LoadInputs(args.x + from * args.x_stride + col, args.cols - col);
    // Magnitudes of BF16 compare as integers; infinities and NaN are the greatest.
    const uint32_t even = max(x.x & 0x7fffu, x.y & 0x7fffu), odd = max(x.x >> 16 & 0x7fffu, x.y >> 16 & 0x7fffu);
    int greatest = static_cast<int>(max(even, odd));
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) greatest = max(greatest, __shfl_xor_sync(kAllLanes, greatest, lanes));
    const bool finite = greatest < 0x7f80, has_codes = finite && greatest > 0;
    const float scale = __uint_as_float(finite ? static_cast<uint32_t>(greatest) << 16 : 0x7fc00000u) / kGreatestE4M3;
    uint32_t codes = 0;
    if (has_codes) {
      const uint32_t low = PackE4M3(__uint_as_float(x.x << 16) / scale, __uint_as_float(x.x & 0xffff0000u) / scale);
      const uint32_t high = PackE4M3(__uint_as_float(x.y << 16) / scale, __uint_as_float(x.y & 0xffff0000u) / scale);
      codes = low | high << 16;
    }
    uint8_t* const out = args.out + row * row_bytes;
    *reinterpret_cast<uint32_t*>(out + col) = codes;
    if (lane == 0) *reinterpret_cast<float*>(out + spans * kFp8Span + span * int64_t{sizeof(float)}) = scale;
  }
}

}  // namespace

LaunchResult LaunchEncodeFp8(const EncodeFp8Args& args, Stream stream) {
  if (args.rows == 0) return {};
  if (args.cols < 1 || args.x_stride % 4 != 0 || reinterpret_cast<uintptr_t>(args.x) % 8 != 0 ||
      reinterpret_cast<uintptr_t>(args.out) % 16 != 0 || (args.begin == nullptr) != (args.end == nullptr)) {
    return {kInvalidArgument};
  }
  const int64_t spans = Fp8Spans(args.cols);
  const int64_t blocks = (args.rows * spans + kWarps - 1) / kWarps;
  return Launch("encode_fp8", EncodeFp8Kernel, dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)),
                dim3(32 * kWarps), 0, stream, args, spans, Fp8RowBytes(args.cols));
}

}  // namespace moestro::cuda
