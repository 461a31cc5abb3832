// Tiles of 128 tokens; those of few tokens are small_linear.cu's. A block computes two row groups of the packed layout
// (64 rows each, which share their scales) for a tile. Each of its kRowWarps x kTokenWarps warps takes 32 rows and
// kWarpTokens tokens. Weights and inputs pass through shared memory in stages of 64 inputs, with kStages - 1 stages in
// flight (cp.async).
//
// The weights are operand A of mma.m16n8k16 (16 rows x 16 inputs), tokens are the columns of B. An mma may number its
// rows and inputs freely, as long as A and B agree, so both follow the weights' layout: 16 bytes are 4 rows x 4 inputs
// (FP8) or x 2 inputs (BF16). With g = lane / 4 and t = lane % 4, a lane takes rows 4g .. 4g + 3 of its warp's 32, as
// rows g and g + 8 of two A fragments. It takes inputs 8t .. 8t + 7 of each 32, 4 per step. So it reads only whole
// 16-byte chunks of weights and inputs, and writes 4 consecutive outputs of a token at once. The chunks are placed in
// shared memory so that 8 lanes that read at once hit different banks.
//
// Gate and up: half of a block's row warps compute rows of the gate, the other half the same rows of up. The results of
// up pass through shared memory at the end.
#include <cuda_runtime.h>

#include "common/kernels/cuda/block_linear.cuh"
#include "common/kernels/cuda/fp8_linear.cuh"
#include "common/kernels/cuda/int8_linear.cuh"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/linear_tile.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/small_linear.cuh"
#include "common/kernels/cuda/weight_fragments.cuh"
#include "common/kernels/cuda/wgmma_linear.cuh"
#include "common/tensor/packed_matrix.h"

namespace moestro::cuda {
namespace {

constexpr int kStepChunks = kStepBytes / kChunk;

template <DType kTheType, bool kIsGateUp, int kTheRowWarps, int kTheWarpTokens, int kTokenWarps, int kTheStages>
struct Tiling : TileShape<kIsGateUp, kTheRowWarps, kTheWarpTokens, kTokenWarps, kTheStages> {
  using Shape = TileShape<kIsGateUp, kTheRowWarps, kTheWarpTokens, kTokenWarps, kTheStages>;
  static constexpr DType kType = kTheType;
  static constexpr int kColsPerStep = 4 / kPieces<kType>;
  static constexpr int kSteps = kStageCols / kColsPerStep;  // per stage and row group
  static constexpr int kWeightBytes = Shape::kRowGroups * kSteps * kStepBytes;
  static constexpr int kStageBytes = kWeightBytes + Shape::kTokens * kInputBytes;
  static constexpr int kSharedBytes = Shape::kStages * kStageBytes;
  static constexpr int kWeightChunks = kWeightBytes / kChunk / Shape::kThreads;  // copied per thread
  static_assert(kWeightBytes % (kChunk * Shape::kThreads) == 0);
};

// Which of the lane's four rows have had NaN codes of FP8. No published weight is NaN, so it costs little to watch: an
// instruction for two weights, where a check before each expansion would take several, and branches.
struct NanRows {
  uint32_t greatest[2][2] = {};  // magnitudes, [fragment][row g or g + 8]

  // a: of ToFragments. Not what AddProducts makes of it: registers of an mma would need copies to live on.
  __device__ __forceinline__ void Watch(const uint32_t (&a)[2][4]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) greatest[i / 4][i % 2] = MaxAbsBf16x2(greatest[i / 4][i % 2], a[i / 4][i % 4]);
  }

  // The sums of such rows become NaN, and the watch begins again. All lanes call it: the four of a row share its
  // inputs.
  template <int kTokenFragments>
  __device__ __forceinline__ void Apply(float (&sums)[2][kTokenFragments][4]) {
    const uint32_t all =
        MaxAbsBf16x2(MaxAbsBf16x2(greatest[0][0], greatest[0][1]), MaxAbsBf16x2(greatest[1][0], greatest[1][1]));
    if (__ballot_sync(kAllLanes, HasNanE4M3(all)) != 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t of_row = greatest[i / 2][i % 2];
        of_row = MaxAbsBf16x2(of_row, __shfl_xor_sync(kAllLanes, of_row, 1));
        of_row = MaxAbsBf16x2(of_row, __shfl_xor_sync(kAllLanes, of_row, 2));
        if (!HasNanE4M3(of_row)) continue;
#pragma unroll
        for (int n = 0; n < kTokenFragments; ++n) {
          sums[i / 2][n][i % 2 * 2] = sums[i / 2][n][i % 2 * 2 + 1] = __uint_as_float(0x7fc00000u);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) greatest[i / 2][i % 2] = 0;
  }
};

// The position of chunk c among the 16 of a step, and among the 8 of a token.
template <DType kType>
__device__ __forceinline__ int WeightPlace(int step, int c) {
  return c ^ (kPieces<kType> == 1 ? step & 6 : (step >> 1) & 6);
}
__device__ __forceinline__ int InputPlace(int token, int c) { return c ^ ((token & 1) << 2); }

// The two A fragments of 32 rows x 16 inputs; the lane's inputs are 8t + 4u .. + 3 of 32. `weights`: the row group's
// part of a stage, from the first of the 32 inputs on; c: the lane's chunk.
template <DType kType>
__device__ __forceinline__ void LoadWeights(const uint8_t* weights, int u, int t, int c, uint32_t (&a)[2][4]) {
  uint4 pieces[kPieces<kType>];
#pragma unroll
  for (int i = 0; i < kPieces<kType>; ++i) {
    const int step = (2 * t + u) * kPieces<kType> + i;
    pieces[i] = *reinterpret_cast<const uint4*>(weights + step * kStepBytes + WeightPlace<kType>(step, c) * kChunk);
  }
  ToFragments<kType>(pieces, a);
}

// I8: a row has a scale.
template <typename T>
__device__ __forceinline__ void ScaleRows(const LinearParams& p, const BlockTile& tile, int row_warp, int g,
                                          float (&totals)[2][T::kWarpTokens / 8][4]) {
  const int64_t row = tile.row_tile * T::kOutputRows + row_warp % (T::kOutputRows / kWarpRows) * kWarpRows + 4 * g;
  if (row >= p.shape.rows) return;
  const float* const scales = MatrixOf<T>(p, tile, row_warp / 2).scales + row;
#pragma unroll
  for (int n = 0; n < T::kWarpTokens / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 8; ++i) totals[i / 4][n][i % 4] *= scales[i / 2];
  }
}

template <typename T>
__device__ __forceinline__ void ComputeTile(const LinearParams& p, const BlockTile& tile) {
  constexpr DType kType = T::kType;
  constexpr int kWarpTokens = T::kWarpTokens, kStages = T::kStages;
  constexpr int kTokenFragments = kWarpTokens / 8;

  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const int row_warp = warp % T::kRowWarps, token_warp = warp / T::kRowWarps;
  const int64_t steps = StepsOf<kType>(p.shape.cols);
  const int64_t stages = (p.shape.cols + kStageCols - 1) / kStageCols;
  uint8_t* const shared = DynamicShared();

  const TileInputs<T> inputs(p, tile, thread);

  const auto copy_stage = [&](int64_t stage) {
    uint8_t* const weights = shared + stage % kStages * T::kStageBytes;
    uint8_t* const x = weights + T::kWeightBytes;
#pragma unroll
    for (int i = 0; i < T::kWeightChunks; ++i) {
      const int chunk = thread + i * T::kThreads;
      const int c = chunk % kStepChunks, step = chunk / kStepChunks % T::kSteps, half = chunk / kStepChunks / T::kSteps;
      const int64_t row_group = RowGroupOf<T>(tile, half);
      const int64_t at_step = stage * T::kSteps + step;
      const bool exists = row_group < p.row_groups && at_step < steps;
      const int64_t at = exists ? (row_group * steps + at_step) * kStepBytes + c * kChunk : int64_t{0};
      const uint8_t* from = MatrixOf<T>(p, tile, half).data + at;
      CopyAsync16(weights + (half * T::kSteps + step) * kStepBytes + WeightPlace<kType>(step, c) * kChunk, from,
                  exists ? kChunk : 0);
    }
    inputs.Copy(p, stage, thread, x, [](int token, int c) { return InputPlace(token, c); });
  };

  float totals[2][kTokenFragments][4] = {};
  float sums[2][kTokenFragments][4] = {};  // of the current 128 inputs
  [[maybe_unused]] NanRows nan_rows;
  // The warp's scales, one per block of inputs.
  const float* scales = nullptr;
  if constexpr (kType == DType::kF8E4M3) {
    const int64_t col_blocks = (p.shape.cols + kScaleBlock - 1) / kScaleBlock;
    scales = MatrixOf<T>(p, tile, row_warp / 2).scales + tile.row_tile * T::kOutputRows / kScaleBlock * col_blocks;
  }
  constexpr int kStagesPerBlock = static_cast<int>(kScaleBlock) / kStageCols;

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
    const uint8_t* const x = weights + T::kWeightBytes + token_warp * kWarpTokens * kInputBytes;
    const uint8_t* const group_weights = weights + row_warp / 2 * T::kSteps * kStepBytes;
    const int c = row_warp % 2 * 8 + g;
#pragma unroll
    for (int k = 0; k < kStageCols / 32; ++k) {
      uint4 b[kTokenFragments];
#pragma unroll
      for (int n = 0; n < kTokenFragments; ++n) {
        const int token = n * 8 + g;
        b[n] = *reinterpret_cast<const uint4*>(x + token * kInputBytes + InputPlace(token, 4 * k + t) * kChunk);
      }
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        uint32_t a[2][4];
        LoadWeights<kType>(group_weights + k * (32 / T::kColsPerStep) * kStepBytes, u, t, c, a);
        if constexpr (kType == DType::kF8E4M3) nan_rows.Watch(a);
        AddProducts<kType>(a, b, u, sums);
      }
    }
    if ((stage + 1) % kStagesPerBlock != 0 && stage + 1 < stages) continue;
    if constexpr (kType == DType::kF8E4M3) nan_rows.Apply(sums);
    const int64_t block = stage / kStagesPerBlock;
    const float scale = kType == DType::kF8E4M3 ? scales[block] : 1.0f;
#pragma unroll
    for (int f = 0; f < 2; ++f) {
#pragma unroll
      for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals[f][n][i] = fmaf(sums[f][n][i], scale, totals[f][n][i]);
          sums[f][n][i] = 0;
        }
      }
    }
  }

  if constexpr (kType == DType::kI8) {
    ScaleRows<T>(p, tile, row_warp, g, totals);
  }
  FinishTile<T>(p, tile, thread, totals);
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads) LinearKernel(const __grid_constant__ LinearParams p) {
  BeginKernel();
  for (int64_t index = blockIdx.x; index < p.row_tiles * p.token_tiles; index += gridDim.x) {
    const BlockTile tile = FindTile<T>(p, index);
    if (tile.tokens == 0) return;              // as all that follow: the groups' tiles come first
    if (index != blockIdx.x) __syncthreads();  // shared memory may be overwritten
    ComputeTile<T>(p, tile);
  }
}

// 72 KiB (FP8) or 96 KiB (16 bits) of shared memory; the latter is the limit of the smallest of these GPUs (99 KiB).
template <DType kType, bool kGateUp>
LaunchResult LaunchTiles(const LinearParams& p, int tile_tokens, Stream stream) {
  if (tile_tokens == kLargeTile) {
    using Large = Tiling<kType, kGateUp, 4, 64, 2, 3>;
    return LaunchTiling<Large>(LinearKernel<Large>, p, stream,
                               p.groups.tiles == nullptr ? int64_t{0x7fffffff} : kMostGroupBlocks);
  }
  return tile_tokens == kSmallTile ? LaunchSmallLinear(p, kGateUp, stream) : LaunchResult{kInvalidArgument};
}

bool IsAligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uint64_t>(bytes) == 0;
}

// Whether there are kernels for these; if so, fills in what follows from the shape.
bool Complete(LinearParams& p) {
  const LinearShape& s = p.shape;
  if (s.rows < 1 || s.cols < 1) return false;
  if (s.codes != nullptr ? s.dtype != DType::kF8E4M3 || !IsAligned(s.codes, 16)
                         : s.x_stride % 8 != 0 || !IsAligned(s.x, 16)) {
    return false;
  }
  for (const MatrixPointers& matrix : p.groups.matrices.of) {
    if (!IsAligned(matrix.data, 16)) return false;
  }
  p.row_groups = PaddedRows(s.rows) / kRowGroup;
  p.aligned_output = s.y_stride % 4 == 0 && IsAligned(s.y, s.output == LinearOutput::kBf16 ? 8 : 16);
  return true;
}

template <bool kGateUp>
LaunchResult LaunchParams(LinearParams p, int tile_tokens, Stream stream) {
  if (kGateUp) p.shape.output = LinearOutput::kBf16;
  if (!Complete(p)) return {kInvalidArgument};
  const LinearShape& s = p.shape;
  if (s.int8_inputs) return LaunchInt8Linear(p, kGateUp, tile_tokens, stream);
  // With BF16 inputs small tiles have the same bits by small_linear.cu, which reads weights faster.
  if (s.dtype == DType::kF8E4M3 && (s.codes != nullptr || tile_tokens == kLargeTile) && HasWgmma()) {
    return LaunchWgmmaLinear(p, kGateUp, tile_tokens, stream);
  }
  if (s.codes != nullptr) return LaunchFp8Linear(p, kGateUp, tile_tokens, stream);
  if (s.dtype == DType::kF8E4M3) return LaunchTiles<DType::kF8E4M3, kGateUp>(p, tile_tokens, stream);
  if (s.dtype == DType::kBF16) return LaunchTiles<DType::kBF16, kGateUp>(p, tile_tokens, stream);
  if (s.dtype == DType::kF16) return LaunchTiles<DType::kF16, kGateUp>(p, tile_tokens, stream);
  if (s.dtype == DType::kI8) return LaunchTiles<DType::kI8, kGateUp>(p, tile_tokens, stream);
  if (IsBlockFormat(s.dtype)) return LaunchBlockLinear(p, kGateUp, tile_tokens, stream);
  return {kInvalidArgument};
}

// All tokens through one matrix.
LinearParams ParamsOf(const LinearShape& shape, const MatrixPointers& matrix, int64_t tokens, int tile) {
  LinearParams p{.shape = shape, .groups = {}, .up = {}, .tokens = tokens, .token_tiles = (tokens + tile - 1) / tile};
  p.groups.matrices.of[0] = matrix;
  return p;
}

// All tokens through one matrix, or one gate and up.
template <bool kGateUp>
LaunchResult LaunchDense(const LinearShape& shape, const MatrixPointers& matrix, const MatrixPointers& up,
                         const HeadRotation& rotation, int64_t tokens, Stream stream) {
  if (tokens == 0) return {};
  const int tile = tokens <= kSmallTile ? kSmallTile : kLargeTile;
  LinearParams p = ParamsOf(shape, matrix, tokens, tile);
  p.up.of[0] = up;
  p.rotation = rotation;
  return LaunchParams<kGateUp>(p, tile, stream);
}

template <bool kGateUp>
LaunchResult LaunchGroups(const LinearShape& shape, const LinearGroups& groups, const MatrixList& up, Stream stream) {
  if (groups.max_tiles == 0) return {};
  if (groups.tiles == nullptr || groups.first_tile == nullptr || groups.end_tile == nullptr) return {kInvalidArgument};
  return LaunchParams<kGateUp>({.shape = shape, .groups = groups, .up = up, .token_tiles = groups.max_tiles},
                               groups.tile_tokens, stream);
}

}  // namespace

bool RotatesOutputs(const LinearShape& shape, const HeadRotation& r, int64_t tokens) {
  return tokens <= kSmallTile && shape.codes == nullptr && !IsBlockFormat(shape.dtype) &&
         shape.output == LinearOutput::kBf16 && r.head_dim % 4 == 0 && r.first % 4 == 0 && r.dims % 4 == 0 &&
         r.first + r.dims <= r.head_dim;
}

LaunchResult LaunchLinear(const LinearShape& shape, const MatrixPointers& matrix, int64_t tokens, Stream stream) {
  return LaunchDense<false>(shape, matrix, {}, {}, tokens, stream);
}
LaunchResult LaunchRotatedLinear(const LinearShape& shape, const HeadRotation& rotation, const MatrixPointers& matrix,
                                 int64_t tokens, Stream stream) {
  if (!RotatesOutputs(shape, rotation, tokens)) return {kInvalidArgument};
  return LaunchDense<false>(shape, matrix, {}, rotation, tokens, stream);
}
LaunchResult LaunchLinearPair(const LinearShape& first, const MatrixPointers& first_matrix, const LinearShape& second,
                              const MatrixPointers& second_matrix, int64_t tokens, Stream stream) {
  const DType dtype = first.dtype;
  const bool has_kernel = dtype == DType::kF8E4M3 || dtype == DType::kBF16 || dtype == DType::kF16;
  const bool together =
      tokens <= kSmallTile && has_kernel && second.dtype == dtype && first.codes == nullptr && second.codes == nullptr;
  if (!together) {
    const LaunchResult result = LaunchLinear(first, first_matrix, tokens, stream);
    return result.ok() ? LaunchLinear(second, second_matrix, tokens, stream) : result;
  }
  if (tokens == 0) return {};
  LinearParams p = ParamsOf(first, first_matrix, tokens, kSmallTile);
  LinearParams q = ParamsOf(second, second_matrix, tokens, kSmallTile);
  return Complete(p) && Complete(q) ? LaunchSmallPair(p, q, stream) : LaunchResult{kInvalidArgument};
}
LaunchResult LaunchGateUp(const LinearShape& shape, const MatrixPointers& gate, const MatrixPointers& up,
                          int64_t tokens, Stream stream) {
  return LaunchDense<true>(shape, gate, up, {}, tokens, stream);
}
LaunchResult LaunchGroupedLinear(const LinearShape& shape, const LinearGroups& groups, Stream stream) {
  return LaunchGroups<false>(shape, groups, {}, stream);
}
LaunchResult LaunchGroupedGateUp(const LinearShape& shape, const LinearGroups& groups, const MatrixList& up,
                                 Stream stream) {
  return LaunchGroups<true>(shape, groups, up, stream);
}

}  // namespace moestro::cuda
