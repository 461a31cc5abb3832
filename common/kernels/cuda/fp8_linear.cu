// As linear.cu, with inputs in FP8 codes: products are of FP8 alone, by mma.m16n8k32, with twice as many to an
// instruction or more. A stage is 128 inputs, which share a scale of the weights and, for each token, one of the
// inputs. Their sum starts from zero and is then scaled and added to the total by one fused multiply-add in F32.
//
// With g = lane / 4 and t = lane % 4, a lane takes rows 4g .. 4g + 3 of its warp's 32, as linear.cu does, and inputs
// 16t .. 16t + 15 of each 64. That is one 16-byte chunk of a token's codes, and four of weights, of 4 rows x 4 inputs.
// A register of A is a row's four codes of such a chunk, two bytes of one word and two of another; one of B is a word.
#include <cuda_runtime.h>

#include "common/kernels/cuda/fp8_inputs.h"
#include "common/kernels/cuda/fp8_linear.cuh"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/ptx.cuh"
#include "common/tensor/packed_matrix.h"

namespace moestro::cuda {
namespace {

constexpr int kCodeCols = static_cast<int>(kFp8Span);  // inputs of a stage
static_assert(kFp8Span == kScaleBlock);
constexpr int kStepCols = 4;  // of the packed weights
constexpr int kStepBytes = kStepCols * static_cast<int>(kRowGroup);
constexpr int kStepChunks = kStepBytes / kChunk;
constexpr int kSteps = kCodeCols / kStepCols;  // of a stage
constexpr int kGroupBytes = kSteps * kStepBytes;
constexpr int kTokenChunksOfStage = kCodeCols / kChunk;

template <bool kIsGateUp, int kTheWarpTokens, int kTokenWarps, int kTheStages>
struct Fp8Tiling : TileShape<kIsGateUp, 4, kTheWarpTokens, kTokenWarps, kTheStages> {
  using Shape = TileShape<kIsGateUp, 4, kTheWarpTokens, kTokenWarps, kTheStages>;
  static constexpr int kWeightBytes = Shape::kRowGroups * kGroupBytes;
  static constexpr int kScalesAt = kWeightBytes + Shape::kTokens * kCodeCols;
  static constexpr int kStageBytes = kScalesAt + Shape::kTokens * static_cast<int>(sizeof(float));
  static constexpr int kSharedBytes = Shape::kStages * kStageBytes;
  static constexpr int kWeightChunks = kGroupBytes / kChunk / Shape::kThreads;  // of a row group, copied per thread
  static constexpr int kCodeChunks = Shape::kTokens * kTokenChunksOfStage / Shape::kThreads;
  static_assert(kGroupBytes % (kChunk * Shape::kThreads) == 0 && Shape::kThreads % kStepChunks == 0);
  static_assert(Shape::kTokens * kTokenChunksOfStage % Shape::kThreads == 0 && Shape::kTokens <= Shape::kThreads);
};

// The position of chunk c among the 16 of a step, and among the 8 of a token.
__device__ __forceinline__ int WeightPlace(int step, int c) { return c ^ (step >> 1 & 6); }
__device__ __forceinline__ int CodePlace(int token, int c) { return c ^ ((token & 1) << 2); }

// What a thread copies: the same chunks of every stage.
template <typename T>
class StageCopies {
 public:
  __device__ __forceinline__ StageCopies(const LinearParams& p, const BlockTile& tile, int thread)
      : steps_((p.shape.cols + kStepCols - 1) / kStepCols) {
    const int c = thread % kStepChunks, step = thread / kStepChunks;
    first_step_ = step;
#pragma unroll
    for (int half = 0; half < T::kRowGroups; ++half) {
      const int64_t row_group = RowGroupOf<T>(tile, half);
      weights_[half] = row_group < p.row_groups
                           ? MatrixOf<T>(p, tile, half).data + (row_group * steps_ + step) * kStepBytes + c * kChunk
                           : nullptr;
    }
#pragma unroll
    for (int i = 0; i < T::kCodeChunks; ++i) {
      const int token = thread / kTokenChunksOfStage + i * (T::kThreads / kTokenChunksOfStage);
      codes_[i] = token < tile.tokens ? p.shape.codes + InputRow(p, tile, token) * p.code_row_bytes +
                                            thread % kTokenChunksOfStage * kChunk
                                      : nullptr;
    }
    scales_ = thread < T::kTokens && thread < tile.tokens
                  ? p.shape.codes + InputRow(p, tile, thread) * p.code_row_bytes + p.code_spans * kFp8Span
                  : nullptr;
  }

  // Begins the copies of the stage to `shared`. The stages come in order.
  __device__ __forceinline__ void Next(const LinearParams& p, int thread, uint8_t* shared) {
    const int c = thread % kStepChunks;
#pragma unroll
    for (int i = 0; i < T::kWeightChunks; ++i) {
      const int step = thread / kStepChunks + i * (T::kThreads / kStepChunks);
      const bool exists = first_step_ + i * (T::kThreads / kStepChunks) < steps_;
#pragma unroll
      for (int half = 0; half < T::kRowGroups; ++half) {
        const bool copied = exists && weights_[half] != nullptr;
        CopyAsync16(shared + (half * kSteps + step) * kStepBytes + WeightPlace(step, c) * kChunk,
                    copied ? weights_[half] + i * (T::kThreads / kStepChunks * kStepBytes) : p.shape.codes,
                    copied ? kChunk : 0);
      }
    }
#pragma unroll
    for (int half = 0; half < T::kRowGroups; ++half) {
      if (weights_[half] != nullptr) weights_[half] += kGroupBytes;
    }
    first_step_ += kSteps;
#pragma unroll
    for (int i = 0; i < T::kCodeChunks; ++i) {
      const int token = thread / kTokenChunksOfStage + i * (T::kThreads / kTokenChunksOfStage);
      const bool copied = codes_[i] != nullptr;
      CopyAsync16(
          shared + T::kWeightBytes + token * kCodeCols + CodePlace(token, thread % kTokenChunksOfStage) * kChunk,
          copied ? codes_[i] : p.shape.codes, copied ? kChunk : 0);
      if (copied) codes_[i] += kCodeCols;
    }
    if (thread < T::kTokens) {
      const bool copied = scales_ != nullptr;
      CopyAsync4(shared + T::kScalesAt + thread * static_cast<int>(sizeof(float)), copied ? scales_ : p.shape.codes,
                 copied ? 4 : 0);
      if (copied) scales_ += sizeof(float);
    }
  }

 private:
  const int64_t steps_;                    // of a whole row
  int64_t first_step_;                     // that the thread copies next
  const uint8_t* weights_[T::kRowGroups];  // null: the row group does not exist
  const uint8_t* codes_[T::kCodeChunks];   // null: the token does not exist
  const uint8_t* scales_;
};

// The A fragments of 32 rows x 32 inputs, from two chunks of 4 rows x 4 inputs.
__device__ __forceinline__ void ToFragments(const uint4& first, const uint4& second, uint32_t (&a)[2][4]) {
  constexpr unsigned kEven = 0x5410, kOdd = 0x7632;  // of the rows that two words share
  a[0][0] = __byte_perm(first.x, first.z, kEven);
  a[0][1] = __byte_perm(first.x, first.z, kOdd);
  a[0][2] = __byte_perm(second.x, second.z, kEven);
  a[0][3] = __byte_perm(second.x, second.z, kOdd);
  a[1][0] = __byte_perm(first.y, first.w, kEven);
  a[1][1] = __byte_perm(first.y, first.w, kOdd);
  a[1][2] = __byte_perm(second.y, second.w, kEven);
  a[1][3] = __byte_perm(second.y, second.w, kOdd);
}

template <typename T>
__device__ __forceinline__ void ComputeTile(const LinearParams& p, const BlockTile& tile) {
  constexpr int kStages = T::kStages, kTokenFragments = T::kWarpTokens / 8;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const int row_warp = warp % T::kRowWarps, token_warp = warp / T::kRowWarps;
  const int stages = p.code_spans;
  uint8_t* const shared = DynamicShared();
  StageCopies<T> copies(p, tile, thread);

  // Of the warp's rows, one for each stage.
  const float* weight_scale =
      MatrixOf<T>(p, tile, row_warp / 2).scales + tile.row_tile * T::kOutputRows / kScaleBlock * stages;
  float totals[2][kTokenFragments][4] = {};

#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < stages) copies.Next(p, thread, shared + stage * T::kStageBytes);
    CommitCopies();
  }
  int slot = 0, next_slot = kStages - 1;  // of the stage, and of the one that is copied meanwhile
  for (int stage = 0; stage < stages; ++stage) {
    WaitCopies<kStages - 2>();
    __syncthreads();  // the stage has arrived, and all threads are done with the stage to be overwritten
    if (stage + kStages - 1 < stages) copies.Next(p, thread, shared + next_slot * T::kStageBytes);
    CommitCopies();

    const uint8_t* const base = shared + slot * T::kStageBytes;
    const uint8_t* const weights = base + row_warp / 2 * kGroupBytes;
    const uint8_t* const codes = base + T::kWeightBytes + token_warp * T::kWarpTokens * kCodeCols;
    const float* const scales = reinterpret_cast<const float*>(base + T::kScalesAt) + token_warp * T::kWarpTokens;
    const int c = row_warp % 2 * 8 + g;
    float sums[2][kTokenFragments][4] = {};
#pragma unroll
    for (int k = 0; k < kCodeCols / 64; ++k) {
      uint32_t a[2][2][4];  // of 32 inputs each
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        uint4 pieces[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int step = 16 * k + 4 * t + 2 * u + i;
          pieces[i] = *reinterpret_cast<const uint4*>(weights + step * kStepBytes + WeightPlace(step, c) * kChunk);
        }
        ToFragments(pieces[0], pieces[1], a[u]);
      }
#pragma unroll
      for (int n = 0; n < kTokenFragments; ++n) {
        const int token = n * 8 + g;
        const uint4 b =
            *reinterpret_cast<const uint4*>(codes + token * kCodeCols + CodePlace(token, 4 * k + t) * kChunk);
        const uint32_t pairs[2][2] = {{b.x, b.y}, {b.z, b.w}};
#pragma unroll
        for (int u = 0; u < 2; ++u) {
          MmaE4M3(sums[0][n], a[u][0], pairs[u]);
          MmaE4M3(sums[1][n], a[u][1], pairs[u]);
        }
      }
    }
    const float of_weights = weight_scale[stage];
#pragma unroll
    for (int n = 0; n < kTokenFragments; ++n) {
      const float2 of_tokens = *reinterpret_cast<const float2*>(scales + n * 8 + 2 * t);
      const float scale[2] = {of_weights * of_tokens.x, of_weights * of_tokens.y};
#pragma unroll
      for (int f = 0; f < 2; ++f) {
#pragma unroll
        for (int i = 0; i < 4; ++i) totals[f][n][i] = fmaf(sums[f][n][i], scale[i % 2], totals[f][n][i]);
      }
    }
    slot = slot + 1 == kStages ? 0 : slot + 1;
    next_slot = next_slot + 1 == kStages ? 0 : next_slot + 1;
  }
  FinishTile<T>(p, tile, thread, totals);
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads) Fp8LinearKernel(const __grid_constant__ LinearParams p) {
  BeginKernel();
  for (int64_t index = blockIdx.x; index < p.row_tiles * p.token_tiles; index += gridDim.x) {
    const BlockTile tile = FindTile<T>(p, index);
    if (tile.tokens == 0) return;              // as all that follow: the groups' tiles come first
    if (index != blockIdx.x) __syncthreads();  // shared memory may be overwritten
    ComputeTile<T>(p, tile);
  }
}

// 98 KiB of shared memory for many tokens, 72 KiB for few.
template <bool kGateUp>
LaunchResult LaunchTiles(const LinearParams& p, int tile_tokens, Stream stream) {
  using Large = Fp8Tiling<kGateUp, 64, 2, 3>;
  using Small = Fp8Tiling<kGateUp, kSmallTile, 1, 4>;
  const int64_t most_blocks = p.groups.tiles == nullptr ? int64_t{0x7fffffff} : kMostGroupBlocks;
  if (tile_tokens == kLargeTile) return LaunchTiling<Large>(Fp8LinearKernel<Large>, p, stream, most_blocks);
  if (tile_tokens == kSmallTile) return LaunchTiling<Small>(Fp8LinearKernel<Small>, p, stream, most_blocks);
  return {kInvalidArgument};
}

}  // namespace

LaunchResult LaunchFp8Linear(LinearParams params, bool gate_up, int tile_tokens, Stream stream) {
  params.code_spans = static_cast<int>(Fp8Spans(params.shape.cols));
  params.code_row_bytes = Fp8RowBytes(params.shape.cols);
  return gate_up ? LaunchTiles<true>(params, tile_tokens, stream) : LaunchTiles<false>(params, tile_tokens, stream);
}

}  // namespace moestro::cuda
