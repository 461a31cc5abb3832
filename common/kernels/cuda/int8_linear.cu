// W8A8: bytes of weights and codes of inputs go to mma.m16n8k32 as they lie, and sums are exact integers. An output is
// (sum * the token's scale) * the row's scale: the bits of common/kernels/cpu/linear_i8.h, in every tile.
//
// Lanes take rows and inputs as in linear.cu, with twice as many inputs: a 16-byte chunk is 4 rows x 4 inputs, or 16
// inputs of a token. So a stage, 128 inputs, is as large as 64 BF16 inputs there, and the parameters count inputs in
// pairs. In tiles of few tokens the warps of a block take 64 inputs in turn, and add their sums at the end.
#include <cuda_runtime.h>

#include "common/kernels/cuda/int8_inputs.h"
#include "common/kernels/cuda/int8_linear.cuh"
#include "common/kernels/cuda/small_linear.cuh"
#include "common/kernels/cuda/weight_fragments.cuh"

namespace moestro::cuda {
namespace {

constexpr int kPairsPerStep = 2;  // of a step of the packed layout, 4 inputs
constexpr int kGroupPairs = 32;   // of the 64 inputs that two mma take
constexpr int kGroupSteps = kGroupPairs / kPairsPerStep;

// Of the inputs' pairs: whole groups, as the weights are padded.
__device__ __forceinline__ int64_t GroupsOf(int64_t pairs) { return (pairs + kGroupPairs - 1) / kGroupPairs; }

// The scale of a row of coded inputs, `codes` its first code.
__device__ __forceinline__ float ScaleOf(const uint16_t* codes) {
  return *reinterpret_cast<const float*>(codes - kInt8Header / 2);
}

// The A fragments of 32 rows x 32 inputs: four bytes of each row lie in a word.
__device__ __forceinline__ void ToByteFragments(const uint4& first, const uint4& second, uint32_t (&a)[2][4]) {
  a[0][0] = first.x;
  a[0][1] = first.y;
  a[0][2] = second.x;
  a[0][3] = second.y;
  a[1][0] = first.z;
  a[1][1] = first.w;
  a[1][2] = second.z;
  a[1][3] = second.w;
}

// Adds the products of 32 inputs, the first (u 0) or last of the lane's 16 in b.
template <int kTokenFragments>
__device__ __forceinline__ void AddByteProducts(const uint32_t (&a)[2][4], const uint4 (&b)[kTokenFragments], int u,
                                                int32_t (&sums)[2][kTokenFragments][4]) {
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
    const uint32_t pair[2] = {u == 0 ? b[n].x : b[n].z, u == 0 ? b[n].y : b[n].w};
    MmaS8(sums[0][n], a[0], pair);
    MmaS8(sums[1][n], a[1], pair);
  }
}

// 96 KiB of shared memory.
template <bool kIsGateUp>
struct LargeTile : TileShape<kIsGateUp, 4, 64, 2, 3> {
  using Shape = TileShape<kIsGateUp, 4, 64, 2, 3>;
  static constexpr int kSteps = kStageCols / kPairsPerStep;  // per stage and row group
  static constexpr int kWeightBytes = Shape::kRowGroups * kSteps * kStepBytes;
  static constexpr int kStageBytes = kWeightBytes + Shape::kTokens * kInputBytes;
  static constexpr int kSharedBytes = Shape::kStages * kStageBytes;
  static constexpr int kWeightChunks = kWeightBytes / kChunk / Shape::kThreads;  // copied per thread
  static_assert(kWeightBytes % (kChunk * Shape::kThreads) == 0);
};

// The position of chunk c among the 16 of a step, and among the 8 of a token: lanes that read at once hit different
// banks.
__device__ __forceinline__ int WeightPlace(int step, int c) { return c ^ ((step >> 1) & 6); }
__device__ __forceinline__ int InputPlace(int token, int c) { return c ^ ((token & 1) << 2); }

template <typename T>
__device__ __forceinline__ void ComputeTile(const LinearParams& p, const BlockTile& tile) {
  constexpr int kStages = T::kStages, kTokenFragments = T::kWarpTokens / 8;
  constexpr int kStepChunks = kStepBytes / kChunk;

  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const int row_warp = warp % T::kRowWarps, token_warp = warp / T::kRowWarps;
  const int64_t steps = GroupsOf(p.shape.cols) * kGroupSteps;  // of a whole row
  const int64_t stages = (p.shape.cols + kStageCols - 1) / kStageCols;
  uint8_t* const shared = DynamicShared();
  const TileInputs<T> inputs(p, tile, thread);

  const auto copy_stage = [&](int64_t stage) {
    uint8_t* const weights = shared + stage % kStages * T::kStageBytes;
#pragma unroll
    for (int i = 0; i < T::kWeightChunks; ++i) {
      const int chunk = thread + i * T::kThreads;
      const int c = chunk % kStepChunks, step = chunk / kStepChunks % T::kSteps, half = chunk / kStepChunks / T::kSteps;
      const int64_t row_group = RowGroupOf<T>(tile, half);
      const int64_t at_step = stage * T::kSteps + step;
      const bool exists = row_group < p.row_groups && at_step < steps;
      const int64_t at = exists ? (row_group * steps + at_step) * kStepBytes + c * kChunk : int64_t{0};
      CopyAsync16(weights + (half * T::kSteps + step) * kStepBytes + WeightPlace(step, c) * kChunk,
                  MatrixOf<T>(p, tile, half).data + at, exists ? kChunk : 0);
    }
    inputs.Copy(p, stage, thread, weights + T::kWeightBytes, [](int token, int c) { return InputPlace(token, c); });
  };

  int32_t sums[2][kTokenFragments][4] = {};
#pragma unroll
  for (int64_t stage = 0; stage < kStages - 1; ++stage) {
    if (stage < stages) copy_stage(stage);
    CommitCopies();
  }
  for (int64_t stage = 0; stage < stages; ++stage) {
    WaitCopies<kStages - 2>();
    __syncthreads();  // the stage has arrived, and all threads are done with the stage to be overwritten
    if (stage + kStages - 1 < stages) copy_stage(stage + kStages - 1);
    CommitCopies();

    const uint8_t* const weights = shared + stage % kStages * T::kStageBytes;
    const uint8_t* const x = weights + T::kWeightBytes + token_warp * T::kWarpTokens * kInputBytes;
    const uint8_t* const group_weights = weights + row_warp / 2 * T::kSteps * kStepBytes;
    const int c = row_warp % 2 * 8 + g;
#pragma unroll
    for (int k = 0; k < kStageCols / kGroupPairs; ++k) {
      uint4 b[kTokenFragments];
#pragma unroll
      for (int n = 0; n < kTokenFragments; ++n) {
        const int token = n * 8 + g;
        b[n] = *reinterpret_cast<const uint4*>(x + token * kInputBytes + InputPlace(token, 4 * k + t) * kChunk);
      }
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        uint4 pieces[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int step = k * kGroupSteps + 4 * t + 2 * u + i;
          pieces[i] =
              *reinterpret_cast<const uint4*>(group_weights + step * kStepBytes + WeightPlace(step, c) * kChunk);
        }
        uint32_t a[2][4];
        ToByteFragments(pieces[0], pieces[1], a);
        AddByteProducts(a, b, u, sums);
      }
    }
  }

  // Four rows of the lane, and two tokens of each fragment.
  const int64_t row = tile.row_tile * T::kOutputRows + row_warp % (T::kOutputRows / kWarpRows) * kWarpRows + 4 * g;
  const float* const scales = MatrixOf<T>(p, tile, row_warp / 2).scales;
  float of_row[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) of_row[i] = row < p.shape.rows ? scales[row + i] : 0.0f;  // whole row groups have scales
  float totals[2][kTokenFragments][4];
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int token = token_warp * T::kWarpTokens + n * 8 + 2 * t + e;
      const float of_token =
          token < tile.tokens ? ScaleOf(p.shape.x + InputRow(p, tile, token) * p.shape.x_stride) : 0.0f;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = i % 2 * 2 + e;
        totals[i / 2][n][at] = static_cast<float>(sums[i / 2][n][at]) * of_token * of_row[i];
      }
    }
  }
  FinishTile<T>(p, tile, thread, totals);
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads) Int8LinearKernel(const __grid_constant__ LinearParams p) {
  BeginKernel();
  for (int64_t index = blockIdx.x; index < p.row_tiles * p.token_tiles; index += gridDim.x) {
    const BlockTile tile = FindTile<T>(p, index);
    if (tile.tokens == 0) return;              // as all that follow: the groups' tiles come first
    if (index != blockIdx.x) __syncthreads();  // shared memory may be overwritten
    ComputeTile<T>(p, tile);
  }
}

constexpr int kQuads = kWarpRows / 4;  // of rows

// A warp's sums of four rows of a token, [kTokens][kQuads]. The lanes that access them together hit different banks.
__device__ __forceinline__ uint4* SumsOf(uint8_t* of_warp, int token, int quad) {
  return reinterpret_cast<uint4*>(of_warp) + token * kQuads + (quad ^ (token & 7));
}

template <bool kIsGateUp, int kTheTokenFragments>
struct FewTokens {
  static constexpr bool kGateUp = kIsGateUp;
  static constexpr int kTokenFragments = kTheTokenFragments;
  static constexpr int kTokens = 8 * kTokenFragments;
  static constexpr int kThreads = 32 * kSmallWarps;
  static constexpr int kMatrices = kGateUp ? 2 : 1;
  static constexpr int kOutputRows = kWarpRows;
  static constexpr int kSlices = kSmallWarps / kMatrices;                                    // groups of inputs at once
  static constexpr int kAhead = 2;                                                           // groups on their way
  static constexpr int kSumBytes = kTokens * kWarpRows * static_cast<int>(sizeof(int32_t));  // of a warp
  static constexpr int kSharedBytes = kSmallWarps * kSumBytes;
  static_assert(kQuads * kTokens <= kThreads);
};

// Weights and inputs of 64 inputs.
template <typename T>
struct Group {
  uint4 weights[4];
  uint4 inputs[T::kTokenFragments];
};

template <typename T>
__global__ void __launch_bounds__(T::kThreads, 1) FewInt8Kernel(const __grid_constant__ LinearParams p) {
  BeginKernel();
  constexpr int kTokenFragments = T::kTokenFragments;
  const BlockTile tile = FindTile<T>(p, blockIdx.x);
  if (tile.tokens == 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const int of_matrix = warp / T::kSlices, slice = warp % T::kSlices;
  const int64_t groups = GroupsOf(p.shape.cols);
  const uint8_t* const weights = MatrixOf<T>(p, tile, of_matrix).data +
                                 tile.row_tile / 2 * groups * kGroupSteps * kStepBytes +
                                 (tile.row_tile % 2 * kQuads + g) * kChunk;
  const uint16_t* x[kTokenFragments];
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
    const int token = n * 8 + g;
    x[n] = token < tile.tokens ? p.shape.x + InputRow(p, tile, token) * p.shape.x_stride : nullptr;
  }

  const auto load = [&](int64_t group, Group<T>& to) {
    const bool exists = group < groups;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t step = group * kGroupSteps + 4 * t + i;
      to.weights[i] = exists ? *reinterpret_cast<const uint4*>(weights + step * kStepBytes) : make_uint4(0, 0, 0, 0);
    }
    const int64_t pair = group * kGroupPairs + 8 * t;
#pragma unroll
    for (int n = 0; n < kTokenFragments; ++n) {
      const bool has_codes = x[n] != nullptr && pair < p.shape.cols;
      to.inputs[n] = has_codes ? *reinterpret_cast<const uint4*>(x[n] + pair) : make_uint4(0, 0, 0, 0);
    }
  };

  int32_t sums[2][kTokenFragments][4] = {};
  Group<T> ahead[T::kAhead];
#pragma unroll
  for (int k = 0; k < T::kAhead; ++k) load(slice + k * T::kSlices, ahead[k]);
  for (int64_t first = slice; first < groups; first += T::kAhead * T::kSlices) {
#pragma unroll
    for (int k = 0; k < T::kAhead; ++k) {
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        uint32_t a[2][4];
        ToByteFragments(ahead[k].weights[2 * u], ahead[k].weights[2 * u + 1], a);
        AddByteProducts(a, ahead[k].inputs, u, sums);
      }
      load(first + (k + T::kAhead) * T::kSlices, ahead[k]);
    }
  }

  uint8_t* const sums_of_warps = DynamicShared();
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      *SumsOf(sums_of_warps + warp * T::kSumBytes, n * 8 + 2 * t + e, g) =
          make_uint4(static_cast<uint32_t>(sums[0][n][e]), static_cast<uint32_t>(sums[0][n][2 + e]),
                     static_cast<uint32_t>(sums[1][n][e]), static_cast<uint32_t>(sums[1][n][2 + e]));
    }
  }
  __syncthreads();
  const int quad = thread % kQuads, token = thread / kQuads;
  if (token >= min(tile.tokens, T::kTokens)) return;
  const int64_t row = tile.row_tile * T::kOutputRows + 4 * quad;
  const float of_token = ScaleOf(p.shape.x + InputRow(p, tile, token) * p.shape.x_stride);
  float totals[T::kMatrices][4];
#pragma unroll
  for (int m = 0; m < T::kMatrices; ++m) {
    uint32_t all[4] = {};
#pragma unroll
    for (int s = 0; s < T::kSlices; ++s) {
      const uint4 sum = *SumsOf(sums_of_warps + (m * T::kSlices + s) * T::kSumBytes, token, quad);
      all[0] += sum.x;
      all[1] += sum.y;
      all[2] += sum.z;
      all[3] += sum.w;
    }
    const float* const scales = MatrixOf<T>(p, tile, m).scales;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float of_row = row < p.shape.rows ? scales[row + i] : 0.0f;
      totals[m][i] = static_cast<float>(static_cast<int32_t>(all[i])) * of_token * of_row;
    }
  }
  FinishQuad<T>(p, tile, token, quad, totals);
}

template <bool kGateUp>
LaunchResult LaunchTiles(const LinearParams& p, int tile_tokens, Stream stream) {
  if (tile_tokens == kLargeTile) {
    using Large = LargeTile<kGateUp>;
    return LaunchTiling<Large>(Int8LinearKernel<Large>, p, stream,
                               p.groups.tiles == nullptr ? int64_t{0x7fffffff} : kMostGroupBlocks);
  }
  if (tile_tokens != kSmallTile) return {kInvalidArgument};
  using One = FewTokens<kGateUp, 1>;
  using Two = FewTokens<kGateUp, 2>;
  const bool one = p.groups.tiles == nullptr && p.tokens <= One::kTokens;
  return one ? LaunchTiling<One>(FewInt8Kernel<One>, p, stream) : LaunchTiling<Two>(FewInt8Kernel<Two>, p, stream);
}

}  // namespace

LaunchResult LaunchInt8Linear(LinearParams params, bool gate_up, int tile_tokens, Stream stream) {
  LinearShape& shape = params.shape;
  if (shape.dtype != DType::kI8 || shape.x_stride < Int8Stride(shape.cols)) return {kInvalidArgument};
  shape.x += kInt8Header / 2;
  shape.cols = Int8Stride(shape.cols) - kInt8Header / 2;
  return gate_up ? LaunchTiles<true>(params, tile_tokens, stream) : LaunchTiles<false>(params, tile_tokens, stream);
}

}  // namespace moestro::cuda
