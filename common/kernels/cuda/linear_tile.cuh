// What the kernels of `linear` share, whatever the type of the weights: the tile of a block, the copy of its inputs,
// and what follows the sums. linear.cu describes how rows, inputs and tokens lie in lanes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/silu.cuh"
#include "common/tensor/packed_matrix.h"

namespace moestro::cuda {

constexpr int kWarpRows = 32;
constexpr int kStageCols = 64;
constexpr int kChunk = 16;                   // bytes
constexpr int kInputBytes = kStageCols * 2;  // per token and stage
constexpr int kInputChunks = kInputBytes / kChunk;

// Blocks of a launch whose blocks compute every gridDim.x-th tile of groups: how many tiles these have is known only on
// the device, and may be a fraction of what would be launched.
constexpr int64_t kMostGroupBlocks = 1024;

struct LinearParams {
  LinearShape shape;
  LinearGroups groups;  // no tiles: one matrix for all tokens
  MatrixList up;        // gate and up: the groups' up matrices
  int64_t tokens = 0;   // if there are no tiles
  int code_spans = 0;   // of a row in codes
  int64_t code_row_bytes = 0;
  int64_t row_groups = 0;
  int64_t row_tiles = 0;
  int64_t token_tiles = 0;
  bool aligned_output = false;  // 4 consecutive outputs may be written at once
  HeadRotation rotation = {};   // in small_linear.cuh
};

template <bool kIsGateUp, int kTheRowWarps, int kTheWarpTokens, int kTokenWarps, int kTheStages>
struct TileShape {
  static constexpr bool kGateUp = kIsGateUp;
  static constexpr int kRowWarps = kTheRowWarps;
  static constexpr int kWarpTokens = kTheWarpTokens;
  static constexpr int kStages = kTheStages;
  static constexpr int kRows = kRowWarps * kWarpRows;
  static constexpr int kRowGroups = kRows / static_cast<int>(kRowGroup);
  static_assert(kRows == kRowGroup || kRows == kScaleBlock, "a block's rows of a matrix have one FP8 scale");
  static_assert(!kGateUp || kRowGroups == 2, "a row group of each matrix");
  static constexpr int kOutputRows = kGateUp ? kRows / 2 : kRows;
  static constexpr int kThreads = 32 * kRowWarps * kTokenWarps;
  static constexpr int kTokens = kWarpTokens * kTokenWarps;
  static constexpr int kTokenChunks = kTokens * kInputChunks / kThreads;  // of inputs, copied per thread
  static_assert(kTokens * kInputChunks % kThreads == 0 && kThreads % kInputChunks == 0);
};

// Rows and tokens of a block.
struct BlockTile {
  int64_t row_tile = 0;
  int64_t first_token = 0;
  int tokens = 0;  // 0: none, the block has nothing to do
  int place = 0;   // of the matrix in the launch's list
};

// Tile `index` of a launch. Concurrent blocks share the inputs of a group, or the weights of a single matrix.
template <typename T>
__device__ __forceinline__ BlockTile FindTile(const LinearParams& p, int64_t index) {
  if (p.groups.tiles == nullptr) {
    const int64_t first = index % p.token_tiles * T::kTokens;
    return {index / p.token_tiles, first, static_cast<int>(min(int64_t{T::kTokens}, p.tokens - first)), 0};
  }
  const int64_t token_tile = index / p.row_tiles;
  if (token_tile >= *p.groups.end_tile - *p.groups.first_tile) return {};
  const TokenTile tile = p.groups.tiles[*p.groups.first_tile + token_tile];
  return {index % p.row_tiles, tile.begin, tile.count, tile.group - p.groups.first_group};
}

// The matrix of the block's row group `half`, and the number of that group in it.
template <typename T>
__device__ __forceinline__ const MatrixPointers& MatrixOf(const LinearParams& p, const BlockTile& tile, int half) {
  return T::kGateUp && half == 1 ? p.up.of[tile.place] : p.groups.matrices.of[tile.place];
}
template <typename T>
__device__ __forceinline__ int64_t RowGroupOf(const BlockTile& tile, int half) {
  return T::kGateUp ? tile.row_tile : tile.row_tile * T::kRowGroups + half;
}

// The row of x of a tile's token.
__device__ __forceinline__ int64_t InputRow(const LinearParams& p, const BlockTile& tile, int token) {
  const int64_t row = tile.first_token + token;
  return p.groups.tiles != nullptr && p.groups.row_of != nullptr ? p.groups.row_of[row] : row;
}

// Inputs of the tokens whose chunks this thread copies; null: none.
template <typename T>
struct TileInputs {
  const uint16_t* of[T::kTokenChunks];

  __device__ __forceinline__ TileInputs(const LinearParams& p, const BlockTile& tile, int thread) {
#pragma unroll
    for (int i = 0; i < T::kTokenChunks; ++i) {
      const int token = (thread + i * T::kThreads) / kInputChunks;
      of[i] = token < tile.tokens ? p.shape.x + InputRow(p, tile, token) * p.shape.x_stride : nullptr;
    }
  }

  // place(token, c): where the chunk c of a token's inputs goes, among its kInputChunks.
  template <typename Place>
  __device__ __forceinline__ void Copy(const LinearParams& p, int64_t stage, int thread, uint8_t* x,
                                       const Place& place) const {
#pragma unroll
    for (int i = 0; i < T::kTokenChunks; ++i) {
      const int chunk = thread + i * T::kThreads;
      const int token = chunk / kInputChunks, c = chunk % kInputChunks;
      const int64_t col = stage * kStageCols + c * 8;
      const int64_t left = of[i] == nullptr ? 0 : max(int64_t{0}, p.shape.cols - col);
      CopyAsync16(x + token * kInputBytes + place(token, c) * kChunk, left > 0 ? of[i] + col : p.shape.x,
                  static_cast<int>(min(int64_t{kChunk}, 2 * left)));
    }
  }
};

// 4 consecutive outputs of one token, of which `valid` exist.
__device__ __forceinline__ void StoreOutputs(const LinearParams& p, int64_t y_row, int64_t row, int valid,
                                             const float (&values)[4]) {
  const int64_t at = y_row * p.shape.y_stride + row;
  if (p.shape.output == LinearOutput::kBf16) {
    uint16_t* y = static_cast<uint16_t*>(p.shape.y) + at;
    const uint32_t low = PackBf16(values[0], values[1]), high = PackBf16(values[2], values[3]);
    if (p.aligned_output && valid == 4) {
      *reinterpret_cast<uint2*>(y) = make_uint2(low, high);
      return;
    }
    const uint32_t packed[2] = {low, high};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < valid) y[i] = static_cast<uint16_t>(packed[i / 2] >> (i % 2 * 16));
    }
    return;
  }
  float* y = static_cast<float*>(p.shape.y) + at;
  const bool add = p.shape.output == LinearOutput::kAddF32;
  if (p.aligned_output && valid == 4) {
    float4 out = make_float4(values[0], values[1], values[2], values[3]);
    if (add) {
      const float4 before = *reinterpret_cast<const float4*>(y);
      out = make_float4(before.x + out.x, before.y + out.y, before.z + out.z, before.w + out.w);
    }
    *reinterpret_cast<float4*>(y) = out;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < valid) y[i] = add ? y[i] + values[i] : values[i];
  }
}

// Four of up's results for one token in shared memory, [kTokens][16 chunks of 4 rows]. The lanes that access it
// together, of 8 chunks and 4 tokens, hit different banks.
__device__ __forceinline__ float4* UpResult(uint8_t* shared, int token, int chunk) {
  return reinterpret_cast<float4*>(shared) + token * 16 + (chunk ^ (token & 7));
}

__device__ __forceinline__ float Activated(const LinearShape& shape, float gate, float up) {
  return shape.swiglu_limit == 0 ? SiluMul(gate, up) : ClampedSwiglu(gate, up, shape.swiglu_limit, shape.swiglu_alpha);
}

// Bias, activation and store of a block's sums: totals[f][n][i] is number i of the accumulator of row fragment f and
// token fragment n. All threads of the block call it; shared memory is free for it.
template <typename T>
__device__ __forceinline__ void FinishTile(const LinearParams& p, const BlockTile& tile, int thread,
                                           float (&totals)[2][T::kWarpTokens / 8][4]) {
  constexpr int kWarpTokens = T::kWarpTokens, kTokenFragments = kWarpTokens / 8;
  uint8_t* const shared = DynamicShared();
  const int warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const int row_warp = warp % T::kRowWarps, token_warp = warp / T::kRowWarps;
  // Four consecutive outputs of the lane.
  const int64_t row = tile.row_tile * T::kOutputRows + row_warp % (T::kOutputRows / kWarpRows) * kWarpRows + 4 * g;
  const float* const bias = MatrixOf<T>(p, tile, row_warp / 2).bias;
  if (bias != nullptr) {
    float of_row[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) of_row[i] = row + i < p.shape.rows ? bias[row + i] : 0.0f;
#pragma unroll
    for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        totals[0][n][i] += of_row[i / 2];
        totals[1][n][i] += of_row[2 + i / 2];
      }
    }
  }

  if constexpr (T::kGateUp) {
    constexpr int kHalf = T::kRowWarps / 2;
    const int chunk = row_warp % kHalf * 8 + g;
    const bool is_up = row_warp >= kHalf;
    WaitCopies<0>();
    __syncthreads();  // all reads of the stages are done
#pragma unroll
    for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int token = token_warp * kWarpTokens + n * 8 + 2 * t + e;
        if (is_up) {
          *UpResult(shared, token, chunk) =
              make_float4(totals[0][n][e], totals[0][n][2 + e], totals[1][n][e], totals[1][n][2 + e]);
        }
      }
    }
    __syncthreads();
    if (is_up) return;
#pragma unroll
    for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float4 up = *UpResult(shared, token_warp * kWarpTokens + n * 8 + 2 * t + e, chunk);
        totals[0][n][e] = Activated(p.shape, totals[0][n][e], up.x);
        totals[0][n][2 + e] = Activated(p.shape, totals[0][n][2 + e], up.y);
        totals[1][n][e] = Activated(p.shape, totals[1][n][e], up.z);
        totals[1][n][2 + e] = Activated(p.shape, totals[1][n][2 + e], up.w);
      }
    }
  }

  const int valid = static_cast<int>(min(int64_t{4}, p.shape.rows - row));
  if (valid <= 0) return;
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int token = token_warp * kWarpTokens + n * 8 + 2 * t + e;
      if (token >= tile.tokens) continue;
      const float values[4] = {totals[0][n][e], totals[0][n][2 + e], totals[1][n][e], totals[1][n][2 + e]};
      StoreOutputs(p, tile.first_token + token, row, valid, values);
    }
  }
}

// kernel: of tiles T. most_blocks: of a kernel whose blocks compute every gridDim.x-th tile.
template <typename T, int kMostShared = kMaxSharedBytes>
LaunchResult LaunchTiling(void (*kernel)(LinearParams), LinearParams p, Stream stream,
                          int64_t most_blocks = 0x7fffffff) {
  static_assert(T::kSharedBytes <= kMostShared);
  p.row_tiles = (p.shape.rows + T::kOutputRows - 1) / T::kOutputRows;
  const int64_t tiles = p.row_tiles * p.token_tiles;
  if (tiles > 0x7fffffff) return {kInvalidArgument};
  return Launch(T::kGateUp ? "gate_up" : "linear", kernel,
                dim3(static_cast<unsigned>(tiles < most_blocks ? tiles : most_blocks)), dim3(T::kThreads),
                T::kSharedBytes, stream, p);
}

}  // namespace moestro::cuda
