// As linear.cu, for weights whose scales lie in the stream of codes. A stage is the codes of 64 inputs. The header of a
// block, 128 or 256 inputs, goes to a place of its own with the block's first stage. It stays there until the last one
// is done, while others arrive.
//
// Sums of a sub-block's products are taken by mma from zero, then scaled and added to the totals in F32. Sub-blocks of
// 128 are scaled 32 inputs at a time. Mins multiply the sum of the inputs, which an mma with ones for weights gives:
// it has them in the lanes that need them.
#include <cuda_runtime.h>

#include "common/kernels/cuda/block_codes.cuh"
#include "common/kernels/cuda/block_linear.cuh"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"

namespace moestro::cuda {
namespace {

template <DType kTheType, bool kIsGateUp, int kTheRowWarps, int kTheWarpTokens, int kTokenWarps, int kTheStages>
struct Tiling : TileShape<kIsGateUp, kTheRowWarps, kTheWarpTokens, kTokenWarps, kTheStages> {
  using Shape = TileShape<kIsGateUp, kTheRowWarps, kTheWarpTokens, kTokenWarps, kTheStages>;
  static constexpr DType kType = kTheType;
  using Constants = BlockConstants<kType>;
  static constexpr int kCodeBytes = kStageCols * static_cast<int>(kRowGroup) * Constants::kBits / 8;  // of a row group
  static constexpr int kStageBytes = Shape::kRowGroups * kCodeBytes + Shape::kTokens * kInputBytes;
  static constexpr int kBlockStages = Constants::kBlock / kStageCols;
  static constexpr int kHeaderBytes = Constants::kHeaderBytes;
  // Blocks that kStages consecutive stages can belong to.
  static constexpr int kHeaders = (Shape::kStages - 2) / kBlockStages + 2;
  static constexpr int kHeadersAt = Shape::kStages * kStageBytes;
  static constexpr int kSharedBytes = kHeadersAt + kHeaders * Shape::kRowGroups * kHeaderBytes;
  static_assert(kCodeBytes % kChunk == 0 && kHeaderBytes % kChunk == 0);
};

// The place of chunk c among the 8 of a token. Q6_K: 4 tokens x 4 lanes read 8 bytes each at once.
template <DType kType>
__device__ __forceinline__ int InputPlace(int token, int c) {
  return kType == DType::kQ6K ? c ^ ((token & 3) << 1) : c ^ ((token & 1) << 2);
}

// totals += scale * sum - min * the sum of the inputs, for the lane's outputs of a token fragment.
template <DType kType>
__device__ __forceinline__ void AddScaled(const float (&sums)[2][4], const RowScales& scales, const float (&inputs)[4],
                                          float (&first)[4], float (&second)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    first[i] = fmaf(sums[0][i], scales.scale[i / 2], first[i]);
    second[i] = fmaf(sums[1][i], scales.scale[2 + i / 2], second[i]);
    if constexpr (BlockConstants<kType>::kHasMins) {
      first[i] = fmaf(scales.minus_min[i / 2], inputs[i], first[i]);
      second[i] = fmaf(scales.minus_min[2 + i / 2], inputs[i], second[i]);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads) BlockLinearKernel(const __grid_constant__ LinearParams p) {
  BeginKernel();
  constexpr DType kType = T::kType;
  using Constants = BlockConstants<kType>;
  constexpr int kStages = T::kStages, kTokenFragments = T::kWarpTokens / 8;
  const BlockTile tile = FindTile<T>(p, blockIdx.x);
  if (tile.tokens == 0) return;

  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const int row_warp = warp % T::kRowWarps, token_warp = warp / T::kRowWarps;
  const int64_t blocks = (p.shape.cols + Constants::kBlock - 1) / Constants::kBlock;
  const int64_t stages = (p.shape.cols + kStageCols - 1) / kStageCols;
  uint8_t* const shared = DynamicShared();
  const TileInputs<T> inputs(p, tile, thread);

  const auto headers_of = [&](int64_t block) {
    return shared + T::kHeadersAt + block % T::kHeaders * (T::kRowGroups * T::kHeaderBytes);
  };
  const auto copy_stage = [&](int64_t stage) {
    uint8_t* const codes = shared + stage % kStages * T::kStageBytes;
    const int64_t block = stage / T::kBlockStages, in_block = stage % T::kBlockStages;
#pragma unroll
    for (int half = 0; half < T::kRowGroups; ++half) {
      const int64_t row_group = RowGroupOf<T>(tile, half);
      const bool exists = row_group < p.row_groups;
      const uint8_t* const from = MatrixOf<T>(p, tile, half).data +
                                  (exists ? (row_group * blocks + block) * Constants::kPackedBytes : int64_t{0});
      if (in_block == 0) {
        uint8_t* const header = headers_of(block) + half * T::kHeaderBytes;
        for (int at = thread * kChunk; at < T::kHeaderBytes; at += T::kThreads * kChunk) {
          CopyAsync16(header + at, from + (exists ? at : 0), exists ? kChunk : 0);
        }
      }
      const int64_t first = T::kHeaderBytes + in_block * T::kCodeBytes;
      for (int chunk = thread; chunk < T::kCodeBytes / kChunk; chunk += T::kThreads) {
        CopyAsync16(codes + half * T::kCodeBytes + CodePlace<kType>(chunk) * kChunk,
                    from + (exists ? first + chunk * kChunk : int64_t{0}), exists ? kChunk : 0);
      }
    }
    inputs.Copy(p, stage, thread, codes + T::kRowGroups * T::kCodeBytes,
                [](int token, int c) { return InputPlace<T::kType>(token, c); });
  };

  float totals[2][kTokenFragments][4] = {};
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

    const uint8_t* const codes = shared + stage % kStages * T::kStageBytes + row_warp / 2 * T::kCodeBytes;
    const uint8_t* const x = shared + stage % kStages * T::kStageBytes + T::kRowGroups * T::kCodeBytes +
                             token_warp * T::kWarpTokens * kInputBytes;
    const uint8_t* const header = headers_of(stage / T::kBlockStages) + row_warp / 2 * T::kHeaderBytes;
    const int quad = row_warp % 2 * 8 + g;
    const int col = static_cast<int>(stage % T::kBlockStages) * kStageCols;  // in the block
    [[maybe_unused]] const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    constexpr int kTogether = kType == DType::kQ6K ? 16 : 32;
#pragma unroll
    for (int k = 0; k < kStageCols / kTogether; ++k) {
      const RowScales scales = LoadScales<kType>(header, quad, (col + k * kTogether) / Constants::kSubBlock);
      uint32_t a[kTogether / 16][2][4];
      if constexpr (kType == DType::kQ6K) {
        LoadCodes16(codes, k, t, quad, a[0]);
      } else {
        LoadCodes32<kType>(codes, k, t, quad, a);
      }
#pragma unroll
      for (int n = 0; n < kTokenFragments; ++n) {
        const int token = n * 8 + g;
        float sums[2][4] = {}, of_inputs[4] = {};
        uint32_t b[kTogether / 16][2];
        if constexpr (kType == DType::kQ6K) {
          const uint2 four = *reinterpret_cast<const uint2*>(
              x + token * kInputBytes + InputPlace<kType>(token, 2 * k + t / 2) * kChunk + t % 2 * 8);
          b[0][0] = four.x;
          b[0][1] = four.y;
        } else {
          const uint4 eight =
              *reinterpret_cast<const uint4*>(x + token * kInputBytes + InputPlace<kType>(token, 4 * k + t) * kChunk);
          b[0][0] = eight.x;
          b[0][1] = eight.y;
          b[1][0] = eight.z;
          b[1][1] = eight.w;
        }
#pragma unroll
        for (int u = 0; u < kTogether / 16; ++u) {
          MmaBf16(sums[0], a[u][0], b[u]);
          MmaBf16(sums[1], a[u][1], b[u]);
          if constexpr (Constants::kHasMins) MmaBf16(of_inputs, ones, b[u]);
        }
        AddScaled<kType>(sums, scales, of_inputs, totals[0][n], totals[1][n]);
      }
    }
  }
  FinishTile<T>(p, tile, thread, totals);
}

// Stages as in linear.cu. Up to 8 bits a weight, so there is room for as many as for FP8.
template <DType kType, bool kGateUp>
LaunchResult LaunchTiles(const LinearParams& p, int tile_tokens, Stream stream) {
  if (tile_tokens == kLargeTile) {
    using Large = Tiling<kType, kGateUp, 4, 64, 2, 3>;
    return LaunchTiling<Large>(BlockLinearKernel<Large>, p, stream);
  }
  if (tile_tokens != kSmallTile) return {kInvalidArgument};
  using Small = Tiling<kType, kGateUp, kGateUp ? 4 : 2, 16, 1, 8>;
  return LaunchTiling<Small>(BlockLinearKernel<Small>, p, stream);
}

template <DType kType>
LaunchResult LaunchType(const LinearParams& p, bool gate_up, int tile_tokens, Stream stream) {
  return gate_up ? LaunchTiles<kType, true>(p, tile_tokens, stream) : LaunchTiles<kType, false>(p, tile_tokens, stream);
}

}  // namespace

LaunchResult LaunchBlockLinear(const LinearParams& params, bool gate_up, int tile_tokens, Stream stream) {
  const DType type = params.shape.dtype;
  if (!IsBlockFormat(type) || params.shape.cols % FormatOf(type).row_block != 0) return {kInvalidArgument};
  return WithFormat(type, [&]<DType kType>() { return LaunchType<kType>(params, gate_up, tile_tokens, stream); });
}

}  // namespace moestro::cuda
