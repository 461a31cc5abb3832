// Products for up to 16 tokens, where reading the weights takes the time. A block computes 32 rows of its matrix,
// or of gate and of up. Its eight warps take blocks of 128 inputs in turn, gate's and up's by four each: so
// there are as many bytes on their way as with many more blocks of threads. A lane loads pieces of weights from global
// memory to registers, well before it needs them; rows, inputs and fragments are those of linear.cu.
//
// The sums of blocks of inputs meet in shared memory. There a thread has four rows of a token: it scales and adds the
// sums in the order of the inputs. So bits are those of linear.cu, whatever number of warps shares the work.
#include <cuda_runtime.h>

#include "common/kernels/cuda/small_linear.cuh"
#include "common/kernels/cuda/weight_fragments.cuh"

namespace moestro::cuda {
namespace {

constexpr int kWarps = kSmallWarps;
constexpr int kGroupCols = 32;                                       // inputs that a warp multiplies at once
constexpr int kGroups = static_cast<int>(kScaleBlock) / kGroupCols;  // of a block of inputs

template <DType kTheType, bool kIsGateUp, int kTheTokenFragments>
struct SmallTile {
  static constexpr DType kType = kTheType;
  static constexpr bool kGateUp = kIsGateUp;
  static constexpr int kTokenFragments = kTheTokenFragments;
  static constexpr int kTokens = 8 * kTokenFragments;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kMatrices = kGateUp ? 2 : 1;
  static constexpr int kOutputRows = kWarpRows;
  static constexpr int kSlices = kWarps / kMatrices;                                       // blocks of inputs at once
  static constexpr int kAhead = kGroups / kPieces<kType>;                                  // groups on their way
  static constexpr int kSumBytes = kTokens * kWarpRows * static_cast<int>(sizeof(float));  // of a warp
  static constexpr int kSharedBytes = kWarps * (kSumBytes + static_cast<int>(sizeof(float)));
  static_assert(kQuads * kTokens <= kThreads);
};

// Weights and inputs of 32 inputs, weights of both of their steps.
template <typename T>
struct Group {
  uint4 weights[2][kPieces<T::kType>];
  uint4 inputs[T::kTokenFragments];
};

__device__ __forceinline__ uint4 NoPiece() { return make_uint4(0, 0, 0, 0); }

// Eight inputs of a token, of which `left` exist; null: none.
__device__ __forceinline__ uint4 LoadInputs(const uint16_t* x, int64_t left) {
  if (x == nullptr || left <= 0) return NoPiece();
  if (left >= 8) return *reinterpret_cast<const uint4*>(x);
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 7; ++i) {
    if (i < left) words[i / 2] |= uint32_t{x[i]} << (i % 2 * 16);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Tile `index` of the launch, or of one of its two products.
template <typename T>
__device__ __forceinline__ void ComputeTile(const LinearParams& p, int64_t index) {
  constexpr int kTokenFragments = T::kTokenFragments, kSlices = T::kSlices;
  constexpr int kColsPerStep = 4 / kPieces<T::kType>;

  const BlockTile tile = FindTile<T>(p, index);
  if (tile.tokens == 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const int of_matrix = warp / kSlices, slice = warp % kSlices;
  const int64_t steps = StepsOf<T::kType>(p.shape.cols);
  const int64_t blocks = (p.shape.cols + kScaleBlock - 1) / kScaleBlock;
  const MatrixPointers& matrix = MatrixOf<T>(p, tile, of_matrix);
  const uint8_t* const weights =
      matrix.data + tile.row_tile / 2 * steps * kStepBytes + (tile.row_tile % 2 * kQuads + g) * kChunk;
  const float* scales = nullptr;
  if constexpr (T::kType == DType::kF8E4M3) {
    scales = matrix.scales + tile.row_tile * T::kOutputRows / kScaleBlock * blocks;
  }
  const uint16_t* x[kTokenFragments];
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
    const int token = n * 8 + g;
    x[n] = token < tile.tokens ? p.shape.x + InputRow(p, tile, token) * p.shape.x_stride : nullptr;
  }
  uint8_t* const sums_of_warps = DynamicShared();
  float* const scale_of_warp = reinterpret_cast<float*>(sums_of_warps + kWarps * T::kSumBytes);

  const auto load = [&](int64_t block, int group, Group<T>& to) {
    const int64_t col = block * kScaleBlock + group * kGroupCols;
    const int64_t first_step = col / kColsPerStep + 2 * t * kPieces<T::kType>;
#pragma unroll
    for (int i = 0; i < 2 * kPieces<T::kType>; ++i) {
      const int64_t step = first_step + i;
      to.weights[i / kPieces<T::kType>][i % kPieces<T::kType>] =
          step < steps ? *reinterpret_cast<const uint4*>(weights + step * kStepBytes) : NoPiece();
    }
#pragma unroll
    for (int n = 0; n < kTokenFragments; ++n) {
      to.inputs[n] = LoadInputs(x[n] == nullptr ? nullptr : x[n] + col + 8 * t, p.shape.cols - col - 8 * t);
    }
  };

  // This thread's outputs: four rows of a token, of each matrix.
  const int quad = thread % kQuads, token = thread / kQuads;
  const bool has_outputs = token < min(tile.tokens, T::kTokens);
  float totals[T::kMatrices][4] = {};

  Group<T> ahead[T::kAhead];
#pragma unroll
  for (int k = 0; k < T::kAhead; ++k) load(slice, k, ahead[k]);
  for (int64_t first = 0; first < blocks; first += kSlices) {
    const int64_t block = first + slice;
    float sums[2][kTokenFragments][4] = {};
    [[maybe_unused]] NanRows nan_rows;
#pragma unroll
    for (int k = 0; k < kGroups; ++k) {
      Group<T>& group = ahead[k % T::kAhead];
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        uint32_t a[2][4];
        ToFragments<T::kType>(group.weights[u], a);
        if constexpr (T::kType == DType::kF8E4M3) nan_rows.Watch(a);
        AddProducts<T::kType>(a, group.inputs, u, sums);
      }
      const int next = k + T::kAhead;
      load(next < kGroups ? block : block + kSlices, next % kGroups, group);
    }
    if (block < blocks) {
      if constexpr (T::kType == DType::kF8E4M3) nan_rows.Apply(sums);
#pragma unroll
      for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          *SumsOf<float4>(sums_of_warps + warp * T::kSumBytes, n * 8 + 2 * t + e, g) =
              make_float4(sums[0][n][e], sums[0][n][2 + e], sums[1][n][e], sums[1][n][2 + e]);
        }
      }
      if (thread % 32 == 0) scale_of_warp[warp] = scales == nullptr ? 1.0f : scales[block];
    }
    __syncthreads();
    if (has_outputs) {
      const int count = static_cast<int>(min(int64_t{kSlices}, blocks - first));
#pragma unroll
      for (int m = 0; m < T::kMatrices; ++m) {
#pragma unroll
        for (int s = 0; s < kSlices; ++s) {
          if (s >= count) continue;
          const int from = m * kSlices + s;
          const float scale = scale_of_warp[from];
          const float4 sum = *SumsOf<float4>(sums_of_warps + from * T::kSumBytes, token, quad);
          totals[m][0] = fmaf(sum.x, scale, totals[m][0]);
          totals[m][1] = fmaf(sum.y, scale, totals[m][1]);
          totals[m][2] = fmaf(sum.z, scale, totals[m][2]);
          totals[m][3] = fmaf(sum.w, scale, totals[m][3]);
        }
      }
    }
    __syncthreads();  // the sums may be overwritten
  }

  if (!has_outputs) return;
  if constexpr (T::kType == DType::kI8) {
    const int64_t row = tile.row_tile * T::kOutputRows + 4 * quad;
    if (row >= p.shape.rows) return;
#pragma unroll
    for (int m = 0; m < T::kMatrices; ++m) {
      const float* const of_row = MatrixOf<T>(p, tile, m).scales + row;
#pragma unroll
      for (int i = 0; i < 4; ++i) totals[m][i] *= of_row[i];
    }
  }
  FinishQuad<T>(p, tile, token, quad, totals);
}

// Weights of the first blocks of inputs of tile `index`, which come while the kernel before this one ends. Tiles of
// groups are not there yet.
template <typename T>
__device__ __forceinline__ void PrefetchTile(const LinearParams& p, int64_t index) {
  constexpr int kPasses = 4;
  constexpr int64_t kBlockSteps = kScaleBlock * kPieces<T::kType> / 4;
  if (p.groups.tiles != nullptr) return;
  const BlockTile tile = FindTile<T>(p, index);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t steps = StepsOf<T::kType>(p.shape.cols);
  const uint8_t* const weights = MatrixOf<T>(p, tile, warp / T::kSlices).data + tile.row_tile / 2 * steps * kStepBytes +
                                 tile.row_tile % 2 * kQuads * kChunk;
  for (int pass = 0; pass < kPasses; ++pass) {
    const int64_t first = (warp % T::kSlices + pass * T::kSlices) * kBlockSteps;
    for (int64_t step = first + lane; step < min(steps, first + kBlockSteps); step += 32) {
      Prefetch(weights + step * kStepBytes);  // a line: the rows of this warp
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, 1) SmallLinearKernel(const __grid_constant__ LinearParams p) {
  PrefetchTile<T>(p, blockIdx.x);
  BeginKernel();
  ComputeTile<T>(p, blockIdx.x);
}

// Both products are single matrices.
struct LinearPair {
  LinearParams first, second;
};

template <typename T>
__global__ void __launch_bounds__(T::kThreads, 1) SmallPairKernel(const __grid_constant__ LinearPair pair) {
  const int64_t tiles = pair.first.row_tiles;
  const bool is_first = blockIdx.x < tiles;
  if (is_first) {
    PrefetchTile<T>(pair.first, blockIdx.x);
  } else {
    PrefetchTile<T>(pair.second, blockIdx.x - tiles);
  }
  BeginKernel();
  if (is_first) {
    ComputeTile<T>(pair.first, blockIdx.x);
  } else {
    ComputeTile<T>(pair.second, blockIdx.x - tiles);
  }
}

template <DType kType>
LaunchResult LaunchPairType(LinearPair pair, Stream stream) {
  const auto launch = [&]<typename T>(T) {
    for (LinearParams* p : {&pair.first, &pair.second}) {
      p->row_tiles = (p->shape.rows + T::kOutputRows - 1) / T::kOutputRows;
    }
    return Launch("linear pair", SmallPairKernel<T>,
                  dim3(static_cast<unsigned>(pair.first.row_tiles + pair.second.row_tiles)), dim3(T::kThreads),
                  T::kSharedBytes, stream, pair);
  };
  using OneFragment = SmallTile<kType, false, 1>;
  return pair.first.tokens <= OneFragment::kTokens ? launch(OneFragment()) : launch(SmallTile<kType, false, 2>());
}

template <DType kType, bool kGateUp>
LaunchResult LaunchType(const LinearParams& p, Stream stream) {
  using OneFragment = SmallTile<kType, kGateUp, 1>;
  using TwoFragments = SmallTile<kType, kGateUp, 2>;
  const bool one = p.groups.tiles == nullptr && p.tokens <= OneFragment::kTokens;
  return one ? LaunchTiling<OneFragment>(SmallLinearKernel<OneFragment>, p, stream)
             : LaunchTiling<TwoFragments>(SmallLinearKernel<TwoFragments>, p, stream);
}

template <bool kGateUp>
LaunchResult LaunchAnyType(const LinearParams& p, Stream stream) {
  if (p.shape.dtype == DType::kF8E4M3) return LaunchType<DType::kF8E4M3, kGateUp>(p, stream);
  if (p.shape.dtype == DType::kBF16) return LaunchType<DType::kBF16, kGateUp>(p, stream);
  if (p.shape.dtype == DType::kF16) return LaunchType<DType::kF16, kGateUp>(p, stream);
  if (p.shape.dtype == DType::kI8) return LaunchType<DType::kI8, kGateUp>(p, stream);
  return {kInvalidArgument};
}

}  // namespace

LaunchResult LaunchSmallLinear(const LinearParams& p, bool gate_up, Stream stream) {
  return gate_up ? LaunchAnyType<true>(p, stream) : LaunchAnyType<false>(p, stream);
}

LaunchResult LaunchSmallPair(const LinearParams& first, const LinearParams& second, Stream stream) {
  const LinearPair pair{first, second};
  if (first.shape.dtype == DType::kF8E4M3) return LaunchPairType<DType::kF8E4M3>(pair, stream);
  if (first.shape.dtype == DType::kBF16) return LaunchPairType<DType::kBF16>(pair, stream);
  if (first.shape.dtype == DType::kF16) return LaunchPairType<DType::kF16>(pair, stream);
  return {kInvalidArgument};
}

}  // namespace moestro::cuda
