// Products for up to 16 tokens, where reading the weights takes the time. A block computes 32 rows of its matrix,
// or of gate and of up. Its eight warps take blocks of 128 inputs in turn, gate's and up's by four each: so
// there are as many bytes on their way as with many more blocks of threads. A lane loads pieces of weights from global
// memory to registers, well before it needs them; rows, inputs and fragments are those of linear.cu.
//
// Matrices of few rows take 16 rows a block (kParts 2), so that twice as many multiprocessors read. Half of the places
// for rows in a warp's fragments then have another block of inputs, and so have half of the places for tokens.
//
// The sums of blocks of inputs meet in shared memory. There a thread has a row of a token: it scales and adds the sums
// in the order of the inputs. So bits are those of linear.cu, whatever number of warps shares the work. A pass writes
// its sums where the pass before the last did, so one barrier a pass is enough.
#include <cuda_runtime.h>

#include "common/kernels/cuda/small_linear.cuh"
#include "common/kernels/cuda/weight_fragments.cuh"

namespace moestro::cuda {
namespace {

constexpr int kWarps = kSmallWarps;
constexpr int kGroupCols = 32;                                       // inputs that a warp multiplies at once
constexpr int kGroups = static_cast<int>(kScaleBlock) / kGroupCols;  // of a block of inputs

template <DType kTheType, bool kIsGateUp, int kTheTokenFragments, int kTheParts = 1>
struct SmallTile {
  static constexpr DType kType = kTheType;
  static constexpr bool kGateUp = kIsGateUp;
  static constexpr int kTokenFragments = kTheTokenFragments;
  static constexpr int kParts = kTheParts;    // blocks of inputs that a warp multiplies at once
  static constexpr int kPlaces = 8 / kParts;  // of a part: quads of rows, and tokens of a fragment
  static constexpr int kTokens = kPlaces * kTokenFragments;
  static_assert(kParts == 1 || kTokenFragments == 1);
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kMatrices = kGateUp ? 2 : 1;
  static constexpr int kMatrixWarps = kWarps / kMatrices;
  static constexpr int kOutputRows = kWarpRows / kParts;
  static constexpr int kTiles = static_cast<int>(kRowGroup) / kOutputRows;  // of a row group
  static constexpr int kSlices = kMatrixWarps * kParts;                     // blocks of inputs at once
  static constexpr int kAhead = kGroups / kPieces<kType>;                   // groups on their way
  static constexpr int kGroupBytes = kGroupCols * kPieces<kType> / 4 * kStepBytes;
  static constexpr int kBlockBytes = kGroups * kGroupBytes;  // of a row group
  // Sums of a pass: [kMatrices * kSlices][kTokens][kOutputRows], then the scales of these blocks of inputs.
  static constexpr int kSums = kTokens * kOutputRows;
  static constexpr int kPassSums = kMatrices * kSlices * (kSums + 1);
  static constexpr int kSharedBytes = 2 * kPassSums * static_cast<int>(sizeof(float));
  static constexpr int kOutputs = kSums <= kThreads ? 1 : kSums / kThreads;  // of a thread, of each matrix

  // Where quad `quad` of a token's sums is. The lanes that store together hit different banks.
  static __device__ __forceinline__ int SumAt(int token, int quad) {
    return token * kOutputRows + (quad ^ (token & (kPlaces - 1))) * 4;
  }
};

// Weights and inputs of 32 inputs, weights of both of their steps.
template <typename T>
struct Group {
  uint4 weights[2][kPieces<T::kType>];
  uint4 inputs[T::kTokenFragments];
};

__device__ __forceinline__ uint4 NoPiece() { return make_uint4(0, 0, 0, 0); }

// Eight inputs of a token, of which `left` exist.
__device__ __forceinline__ uint4 LoadInputs(const uint16_t* x, int64_t left) {
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < left) words[i / 2] |= uint32_t{x[i]} << (i % 2 * 16);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// What a lane reads: of weights four rows, of inputs a token of each fragment, both of inputs 8t .. 8t + 7 of each 32.
template <typename T>
struct LaneData {
  const uint8_t* weights;
  const uint16_t* x[T::kTokenFragments];

  // `group` of the block of inputs that lies `blocks` further, if it exists.
  __device__ __forceinline__ void Load(bool exists, int blocks, int group, Group<T>& to) const {
#pragma unroll
    for (int i = 0; i < 2 * kPieces<T::kType>; ++i) {
      LoadIf(exists, weights + blocks * T::kBlockBytes + group * T::kGroupBytes + i * kStepBytes,
             to.weights[i / kPieces<T::kType>][i % kPieces<T::kType>]);
    }
#pragma unroll
    for (int n = 0; n < T::kTokenFragments; ++n) {
      LoadIf(exists, x[n] + blocks * static_cast<int>(kScaleBlock) + group * kGroupCols, to.inputs[n]);
    }
  }

  // The same of the first group, of which the lane has `steps` of weights and `cols` inputs.
  __device__ __forceinline__ void LoadRest(int64_t steps, int64_t cols, Group<T>& to) const {
#pragma unroll
    for (int i = 0; i < 2 * kPieces<T::kType>; ++i) {
      to.weights[i / kPieces<T::kType>][i % kPieces<T::kType>] =
          i < steps ? *reinterpret_cast<const uint4*>(weights + i * kStepBytes) : NoPiece();
    }
#pragma unroll
    for (int n = 0; n < T::kTokenFragments; ++n) to.inputs[n] = LoadInputs(x[n], cols);
  }

  __device__ __forceinline__ void Advance(int64_t weight_bytes, int64_t cols) {
    weights += weight_bytes;
#pragma unroll
    for (int n = 0; n < T::kTokenFragments; ++n) x[n] += cols;
  }
};

// Products of a block of inputs, or of a block for each part.
template <typename T>
struct BlockSums {
  float of[2][T::kTokenFragments][4] = {};

  __device__ __forceinline__ void Add(const Group<T>& group, uint32_t& nan_signs) {
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      if constexpr (T::kType == DType::kF8E4M3) {
        const uint4 codes = group.weights[u][0];
        nan_signs |= MayBeNanE4M3(codes.x);
        nan_signs |= MayBeNanE4M3(codes.y);
        nan_signs |= MayBeNanE4M3(codes.z);
        nan_signs |= MayBeNanE4M3(codes.w);
      }
      uint32_t a[2][4];
      ToFragments<T::kType>(group.weights[u], a);
      AddProducts<T::kType>(a, group.inputs, u, of);
    }
  }

  // All lanes call it. exists: the block of inputs of the lane's part; if not, the sums become what leaves a total as
  // it is, with a scale of 1.
  __device__ __forceinline__ void Store(int lane, bool exists, float* sums) const {
    const int g = lane / 4, t = lane % 4;
    if (T::kParts > 1 && g / T::kPlaces != 2 * t / T::kPlaces) return;  // rows of a part, tokens of another
#pragma unroll
    for (int n = 0; n < T::kTokenFragments; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float* const to = sums + T::SumAt(n * 8 + (2 * t + e) % T::kPlaces, g % T::kPlaces);
        *reinterpret_cast<float4*>(to) = exists
                                             ? make_float4(of[0][n][e], of[0][n][2 + e], of[1][n][e], of[1][n][2 + e])
                                             : make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
      }
    }
  }
};

// Bit l of word i: whether lane l's row i has NaN codes. All lanes call it. nan_signs: of all codes of the lane.
// weights: the lane's first ones, of the first block of inputs; it has every kSlices-th one from `slice` on.
template <typename T>
__device__ __forceinline__ void TellNanRows(uint32_t nan_signs, const uint8_t* weights, int slice, int64_t steps,
                                            int lane, int t, uint32_t* words) {
  bool rows[4] = {};
  if (__ballot_sync(kAllLanes, (nan_signs & kSignsE4M3) != 0) != 0) {  // hardly ever
    constexpr int64_t kBlockSteps = T::kBlockBytes / kStepBytes;
    for (int64_t step = slice * kBlockSteps; step < steps - 2 * t; step += T::kSlices * kBlockSteps) {
#pragma unroll 1
      for (int64_t i = step; i < min(steps - 2 * t, step + kBlockSteps); i += 1 + i % 2 * 6) {
        const uint4 codes = *reinterpret_cast<const uint4*>(weights + i * kStepBytes);
        const uint32_t upper = AreNanE4M3(codes.x) | AreNanE4M3(codes.z);
        const uint32_t lower = AreNanE4M3(codes.y) | AreNanE4M3(codes.w);
        rows[0] |= (upper & 0xffffu) != 0;
        rows[1] |= upper >> 16 != 0;
        rows[2] |= (lower & 0xffffu) != 0;
        rows[3] |= lower >> 16 != 0;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t lanes = __ballot_sync(kAllLanes, rows[i]);
    if (lane == i) words[i] = lanes;
  }
}

// Tile `index` of the launch, or of one of its two products.
template <typename T>
__device__ __forceinline__ void ComputeTile(const LinearParams& p, int64_t index) {
  constexpr int kTokenFragments = T::kTokenFragments, kSlices = T::kSlices, kMatrices = T::kMatrices;
  constexpr int kLanePieces = 2 * kPieces<T::kType>;  // of a group
  constexpr bool kHasScales = T::kType == DType::kF8E4M3;

  const BlockTile tile = FindTile<T>(p, index);
  if (tile.tokens == 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int of_matrix = warp / T::kMatrixWarps, first_slice = warp % T::kMatrixWarps * T::kParts;
  const int slice = first_slice + g / T::kPlaces;
  const int64_t steps = StepsOf<T::kType>(p.shape.cols);
  const int blocks = static_cast<int>((p.shape.cols + kScaleBlock - 1) / kScaleBlock);
  const int whole = static_cast<int>(p.shape.cols / kScaleBlock);  // blocks of 128 inputs
  const MatrixPointers& matrix = MatrixOf<T>(p, tile, of_matrix);
  LaneData<T> data;
  data.weights = matrix.data + (tile.row_tile / T::kTiles * steps + t * kLanePieces) * kStepBytes +
                 (tile.row_tile % T::kTiles * T::kPlaces + g % T::kPlaces) * kChunk;
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
    const int token = n * 8 + g % T::kPlaces;  // one that does not exist has the first one's inputs
    data.x[n] = p.shape.x + InputRow(p, tile, token < tile.tokens ? token : 0) * p.shape.x_stride + 8 * t;
  }
  [[maybe_unused]] const float* scales = nullptr;
  if constexpr (kHasScales) scales = matrix.scales + tile.row_tile * T::kOutputRows / kScaleBlock * blocks;

  float* const passes = reinterpret_cast<float*>(DynamicShared());
  // Of a lane's part: its sums in a pass.
  const int place = warp * T::kParts + g / T::kPlaces;
  const auto store = [&](const BlockSums<T>& sums, bool exists, float scale, float* of_pass) {
    sums.Store(lane, exists, of_pass + place * T::kSums);
    if (kHasScales && g % T::kPlaces == 0 && t == 0) {
      of_pass[kMatrices * kSlices * T::kSums + place] = exists ? scale : 1.0f;
    }
  };

  // This thread's outputs: a row of a token, or of two, of each matrix.
  const int row = thread % T::kOutputRows, token = thread / T::kOutputRows;
  float totals[kMatrices][T::kOutputs] = {};
  const bool has_outputs = token < min(tile.tokens, T::kTokens);
  const int sum_at = T::SumAt(token, row / 4) + row % 4;
  // Slices begin .. end - 1 of a pass.
  const auto add = [&](const float* of_pass, int begin, int end) {
    const float* const from = of_pass + sum_at;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int s = begin; s < end; ++s) {
        const int at = m * kSlices + s;
        const float scale = kHasScales ? of_pass[kMatrices * kSlices * T::kSums + at] : 1.0f;
#pragma unroll
        for (int i = 0; i < T::kOutputs; ++i) {
          float& total = totals[m][i];
          total = fmaf(from[at * T::kSums + i * T::kThreads], scale, total);
        }
      }
    }
  };

  LaneData<T> next = data;  // of the blocks of this pass
  next.Advance(slice * int64_t{T::kBlockBytes}, slice * kScaleBlock);
  int left = whole - slice;  // blocks from the lane's on
  int left_of_warp = whole - first_slice;
  float scale = 1;
  Group<T> ahead[T::kAhead] = {};
#pragma unroll
  for (int k = 0; k < T::kAhead; ++k) next.Load(left > 0, 0, k, ahead[k]);
  if (kHasScales && left > 0) scale = scales[slice];
  uint32_t nan_signs = 0;
  float* of_pass = passes;
  float* of_next = passes + T::kPassSums;
  for (int first = 0; first < whole; first += kSlices) {
    BlockSums<T> sums;
    const bool exists = left > 0, more = left > kSlices;
    const float scale_now = scale;
    if (left_of_warp > 0) {
#pragma unroll
      for (int k = 0; k < kGroups; ++k) {
        sums.Add(ahead[k % T::kAhead], nan_signs);
        const int later = k + T::kAhead;
        next.Load(later < kGroups ? exists : more, later / kGroups * kSlices, later % kGroups, ahead[k % T::kAhead]);
      }
      if (kHasScales && more) scale = scales[first + slice + kSlices];
    }
    store(sums, exists, scale_now, of_pass);
    __syncthreads();
    if (has_outputs) add(of_pass, 0, kSlices);
    next.Advance(kSlices * T::kBlockBytes, kSlices * kScaleBlock);
    left -= kSlices;
    left_of_warp -= kSlices;
    float* const other = of_pass;
    of_pass = of_next;
    of_next = other;
  }

  if (whole < blocks) {  // a block of fewer inputs
    const int its_slice = whole % kSlices;
    if (its_slice / T::kParts * T::kParts == first_slice) {
      LaneData<T> rest = data;
      rest.Advance(whole * int64_t{T::kBlockBytes}, whole * kScaleBlock);
      const bool exists = slice == its_slice;
      int64_t steps_left = exists ? steps - whole * (T::kBlockBytes / kStepBytes) - t * kLanePieces : 0;
      int64_t cols_left = exists ? p.shape.cols - whole * kScaleBlock - 8 * t : 0;
      BlockSums<T> sums;
#pragma unroll 1
      for (int k = 0; k < kGroups; ++k) {
        Group<T> group;
        rest.LoadRest(steps_left, cols_left, group);
        sums.Add(group, nan_signs);
        rest.Advance(T::kGroupBytes, kGroupCols);
        steps_left -= T::kGroupBytes / kStepBytes;
        cols_left -= kGroupCols;
      }
      store(sums, exists, exists && kHasScales ? scales[whole] : 1.0f, of_pass);
    }
    __syncthreads();
    if (has_outputs) add(of_pass, its_slice, its_slice + 1);
  }

  // Four rows of a token to a thread.
  __syncthreads();  // the sums may be overwritten
  if constexpr (kHasScales) {
    uint32_t* const nan_lanes = reinterpret_cast<uint32_t*>(passes + kMatrices * T::kSums) + warp * 4;
    TellNanRows<T>(nan_signs, data.weights, slice, steps, lane, t, nan_lanes);
  }
  if (token < T::kTokens) {
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int i = 0; i < T::kOutputs; ++i) passes[m * T::kSums + i * T::kThreads + thread] = totals[m][i];
    }
  }
  __syncthreads();
  const int quad = thread % T::kPlaces, of_quad = thread / T::kPlaces;
  if (of_quad >= min(tile.tokens, T::kTokens)) return;
  float outputs[kMatrices][4];
#pragma unroll
  for (int m = 0; m < kMatrices; ++m) {
    const float4 four = *reinterpret_cast<const float4*>(passes + m * T::kSums + of_quad * T::kOutputRows + 4 * quad);
    outputs[m][0] = four.x;
    outputs[m][1] = four.y;
    outputs[m][2] = four.z;
    outputs[m][3] = four.w;
  }
  if constexpr (T::kType == DType::kI8) {
    const int64_t first_row = tile.row_tile * T::kOutputRows + 4 * quad;
    if (first_row >= p.shape.rows) return;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      const float* const of_row = MatrixOf<T>(p, tile, m).scales + first_row;
#pragma unroll
      for (int i = 0; i < 4; ++i) outputs[m][i] *= of_row[i];
    }
  }
  if constexpr (kHasScales) {
    const uint32_t* const nan_lanes = reinterpret_cast<const uint32_t*>(passes + kMatrices * T::kSums);
    constexpr uint32_t kLanesOfQuad = T::kParts == 1 ? 0xf : 0xf000f;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      for (int w = 0; w < T::kMatrixWarps; ++w) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t lanes = nan_lanes[(m * T::kMatrixWarps + w) * 4 + i] >> (4 * quad);
          if ((lanes & kLanesOfQuad) != 0) outputs[m][i] = __uint_as_float(0x7fc00000u);
        }
      }
    }
  }
  FinishQuad<T>(p, tile, of_quad, quad, outputs);
}

// Weights of the first blocks of inputs of tile `index`, which come while the kernel before this one ends. Tiles of
// groups are not there yet.
template <typename T>
__device__ __forceinline__ void PrefetchTile(const LinearParams& p, int64_t index) {
  constexpr int kPasses = 4 / T::kParts;
  constexpr int64_t kPassSteps = T::kParts * T::kBlockBytes / kStepBytes;  // of a warp
  if (p.groups.tiles != nullptr) return;
  const BlockTile tile = FindTile<T>(p, index);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t steps = StepsOf<T::kType>(p.shape.cols);
  const uint8_t* const weights = MatrixOf<T>(p, tile, warp / T::kMatrixWarps).data +
                                 tile.row_tile / T::kTiles * steps * kStepBytes +
                                 tile.row_tile % T::kTiles * T::kPlaces * kChunk;
  for (int pass = 0; pass < kPasses; ++pass) {
    const int64_t first = (warp % T::kMatrixWarps + pass * T::kMatrixWarps) * kPassSteps;
    for (int64_t step = first + lane; step < min(steps, first + kPassSteps); step += 32) {
      Prefetch(weights + step * kStepBytes);  // a line: the rows of this warp
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::kTokenFragments == 1 ? 2 : 1)
    SmallLinearKernel(const __grid_constant__ LinearParams p) {
  PrefetchTile<T>(p, blockIdx.x);
  BeginKernel();
  ComputeTile<T>(p, blockIdx.x);
}

// Both products are single matrices.
struct LinearPair {
  LinearParams first, second;
};

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::kTokenFragments == 1 ? 2 : 1)
    SmallPairKernel(const __grid_constant__ LinearPair pair) {
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

// Whether tiles of 32 rows leave multiprocessors idle.
bool LeavesIdle(int64_t rows) { return (rows + kWarpRows - 1) / kWarpRows < Multiprocessors(); }

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
  const int64_t tokens = pair.first.tokens;
  if constexpr (kType == DType::kF8E4M3) {
    using FewRows = SmallTile<kType, false, 1, 2>;
    const int64_t rows = pair.first.shape.rows + pair.second.shape.rows;
    if (tokens <= FewRows::kTokens && LeavesIdle(rows)) return launch(FewRows());
  }
  return tokens <= OneFragment::kTokens ? launch(OneFragment()) : launch(SmallTile<kType, false, 2>());
}

template <DType kType, bool kGateUp>
LaunchResult LaunchType(const LinearParams& p, Stream stream) {
  using OneFragment = SmallTile<kType, kGateUp, 1>;
  using TwoFragments = SmallTile<kType, kGateUp, 2>;
  if (p.groups.tiles != nullptr) return LaunchTiling<TwoFragments>(SmallLinearKernel<TwoFragments>, p, stream);
  if constexpr (kType == DType::kF8E4M3) {
    using FewRows = SmallTile<kType, kGateUp, 1, 2>;
    if (p.tokens <= FewRows::kTokens && LeavesIdle(p.shape.rows)) {
      return LaunchTiling<FewRows>(SmallLinearKernel<FewRows>, p, stream);
    }
  }
  return p.tokens <= OneFragment::kTokens ? LaunchTiling<OneFragment>(SmallLinearKernel<OneFragment>, p, stream)
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
