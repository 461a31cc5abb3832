// A block codes a row at a time: the greatest magnitude, then the codes in shared memory, then the row. So a row may
// take the place of its inputs.
#include <cuda_runtime.h>

#include "common/kernels/cuda/int8_codes.cuh"
#include "common/kernels/cuda/int8_inputs.h"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"

namespace moestro::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kTileBlocks = 8;  // that share the rows of a tile

// Four inputs, of which `left` exist; others are 0.
__device__ __forceinline__ uint2 LoadFour(const uint16_t* x, int64_t left) {
  if (left >= 4) return *reinterpret_cast<const uint2*>(x);
  uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    if (i < left) words[i / 2] |= uint32_t{x[i]} << (i % 2 * 16);
  }
  return make_uint2(words[0], words[1]);
}

// All threads call it; the shared memory holds the codes, then a word a warp.
__device__ __forceinline__ void CodeRow(const EncodeInt8Args& args, int64_t row, int thread) {
  const uint16_t* const x = args.x + row * args.x_stride;
  uint16_t* const out = args.out + row * args.out_stride;
  const int64_t padded = (args.cols + 15) / 16 * 16;
  auto* const codes = reinterpret_cast<uint32_t*>(DynamicShared());
  uint32_t* const of_warps = codes + padded / 4;

  uint32_t greatest = 0;
  for (int64_t col = 4 * thread; col < args.cols; col += 4 * kThreads) {
    greatest = Greater(greatest, GreatestMagnitude(LoadFour(x + col, args.cols - col)));
  }
  const RowCodes row_codes = CodesOf(BlockGreatest<kThreads>(greatest, of_warps));
  for (int64_t col = 4 * thread; col < padded; col += 4 * kThreads) {
    codes[col / 4] = row_codes.Of(LoadFour(x + col, args.cols - col));
  }
  __syncthreads();  // all inputs have been read
  auto* const to = reinterpret_cast<uint32_t*>(out);
  if (thread == 0) to[0] = __float_as_uint(row_codes.scale);
  for (int64_t i = thread; i < padded / 4; i += kThreads) to[kInt8Header / 4 + i] = codes[i];
  __syncthreads();  // shared memory may be overwritten
}

__global__ void __launch_bounds__(kThreads) EncodeInt8Kernel(const __grid_constant__ EncodeInt8Args args) {
  BeginKernel();
  const int thread = static_cast<int>(threadIdx.x);
  if (args.tiles == nullptr) return CodeRow(args, blockIdx.x, thread);
  if (static_cast<int64_t>(blockIdx.x) >= *args.end_tile - *args.first_tile) return;
  const TokenTile tile = args.tiles[*args.first_tile + static_cast<int32_t>(blockIdx.x)];
  for (int32_t i = static_cast<int32_t>(blockIdx.y); i < tile.count; i += static_cast<int32_t>(kTileBlocks)) {
    CodeRow(args, tile.begin + i, thread);
  }
}

}  // namespace

LaunchResult LaunchEncodeInt8(const EncodeInt8Args& args, Stream stream) {
  const bool by_tiles = args.tiles != nullptr;
  const int64_t blocks = by_tiles ? args.max_tiles : args.rows;
  if (blocks == 0) return {};
  static_assert(kMaxInt8Inputs + kWarps * static_cast<int64_t>(sizeof(uint32_t)) <= kMaxSharedBytes);
  const int64_t shared = (args.cols + 15) / 16 * 16 + kWarps * static_cast<int64_t>(sizeof(uint32_t));
  const auto is_aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (blocks < 0 || blocks > 0x7fffffff || args.cols < 1 || args.cols > kMaxInt8Inputs || !is_aligned(args.x) ||
      !is_aligned(args.out) || args.x_stride % 8 != 0 || args.out_stride % 8 != 0 ||
      args.out_stride < Int8Stride(args.cols) || (args.out == args.x && args.out_stride != args.x_stride)) {
    return {kInvalidArgument};
  }
  return Launch("int8_inputs", EncodeInt8Kernel, dim3(static_cast<unsigned>(blocks), by_tiles ? kTileBlocks : 1),
                dim3(kThreads), shared, stream, args);
}

}  // namespace moestro::cuda
