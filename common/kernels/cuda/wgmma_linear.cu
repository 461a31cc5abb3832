// Products of FP8 weights by groups of four warps (wgmma.cuh). A block computes two row groups of 64 rows for a tile of
// tokens, a warp group each. Weights are operand A, in registers: FP8 codes as they are where inputs are FP8 codes,
// else expanded to BF16. Tokens are the columns of B, in shared memory. Stages of 128 inputs come by cp.async, with
// kStages - 2 on their way: products still read the stage before the current one.
//
// A warp has 16 rows, four chunks of 4 rows x 4 inputs in each step of the packed layout. With g = lane / 4 and t =
// lane % 4, a lane takes rows 4 (g / 2) + 2 (g % 2) and the next, as rows g and g + 8 of A. It reads words of 2 rows x
// 2 inputs. Steps lie in shared memory so that the 32 words that lanes read at once hit different banks.
//   FP8   a product takes 32 inputs, in order: a lane those of steps t and t + 4.
//   BF16  a product takes 16 of 32 inputs, those of linear.cu's and small_linear.cu's mma: inputs 8i + 4u .. + 3 for i
//         in 0 .. 3. So a row has the same bits in every tile. B's rows have these together: pieces of 8 bytes.
//
// Tokens are in two halves, each with sums of its own. While one half's sums of a stage are scaled and added to the
// totals, the other half's products run. A comes in batches of two products a half, in two sets of registers.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

#include "common/kernels/cuda/fp8.cuh"
#include "common/kernels/cuda/fp8_inputs.h"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/reduce.cuh"
#include "common/kernels/cuda/weight_fragments.cuh"
#include "common/kernels/cuda/wgmma.cuh"
#include "common/kernels/cuda/wgmma_linear.cuh"
#include "common/tensor/packed_matrix.h"

namespace moestro::cuda {
namespace {

constexpr int kCols = static_cast<int>(kScaleBlock);  // inputs of a stage
static_assert(kFp8Span == kScaleBlock);
constexpr int kStepChunks = kStepBytes / kChunk;
constexpr int kSteps = kCols / 4;  // of a stage
constexpr int kGroupBytes = kSteps * kStepBytes;
constexpr int kBatch = 2;  // products of a half
// Stages between two waits for all products. A round may end with stages that do not exist, and are zeros.
constexpr int kRound = 4;
constexpr float kGreatestE4M3 = 448.0f;

template <bool kIsGateUp, bool kTheFp8, int kTheTokens, int kTheStages>
struct WgmmaTile {
  static constexpr bool kGateUp = kIsGateUp;
  static constexpr bool kFp8 = kTheFp8;  // inputs
  static constexpr int kTokens = kTheTokens;
  static constexpr int kStages = kTheStages;
  static constexpr int kRowGroups = 2;
  static constexpr int kThreads = 128 * kRowGroups;
  static constexpr int kOutputRows = kGateUp ? kRowGroup : 2 * kRowGroup;
  static constexpr int kHalves = kTokens == kLargeTile ? 2 : 1;
  static constexpr int kHalfTokens = kTokens / kHalves;
  static constexpr int kSums = kHalfTokens / 2;  // of a lane
  static constexpr int kBatches = kFp8 ? 2 : 4;  // of a stage
  static constexpr int kPartBytes = kTokens * kSwizzledRowBytes;
  static constexpr int kParts = kFp8 ? 1 : 2;  // of the inputs: 128 bytes of each token
  static constexpr int kWeightBytes = kRowGroups * kGroupBytes;
  static constexpr int kStageBytes = kWeightBytes + kParts * kPartBytes;
  static_assert(kStageBytes % kSwizzledAtomBytes == 0 && kPartBytes % kSwizzledAtomBytes == 0);
  // FP8: the tokens' greatest inputs in BF16, of two stages.
  static constexpr int kGreatestAt = kStages * kStageBytes;
  static constexpr int kSharedBytes = kGreatestAt + (kFp8 ? 2 * kTokens * 2 : 0);
  static constexpr int kTokenLanes = 8;  // threads that copy inputs of a token
  static constexpr int kCopied = kTokens < kThreads / kTokenLanes ? 1 : kTokens / (kThreads / kTokenLanes);  // tokens
};

// The first of the tokens whose inputs the thread copies. BF16: the four of a warp fill all banks.
template <typename T>
__device__ __forceinline__ int CopiedToken(int thread) {
  const int m = thread / T::kTokenLanes;
  return T::kFp8 ? m : (m & 16) | (m & 3) << 2 | (m >> 2 & 3);
}

// What a thread copies: the same pieces of every stage. What does not exist becomes zeros: copies of 0 bytes, whose
// address does not matter.
template <typename T>
class StageCopies {
 public:
  __device__ __forceinline__ StageCopies(const LinearParams& p, const BlockTile& tile, int thread) {
    const auto steps = static_cast<int>((p.shape.cols + 3) / 4);  // of a whole row
    const int c = thread % kStepChunks, step = thread / kStepChunks, lane = thread % T::kTokenLanes;
#pragma unroll
    for (int half = 0; half < T::kRowGroups; ++half) {
      const int64_t row_group = RowGroupOf<T>(tile, half);
      steps_left_[half] = row_group < p.row_groups ? steps - step : 0;
      weights_[half] = MatrixOf<T>(p, tile, half).data + (row_group * steps + step) * kStepBytes + c * kChunk;
    }
    // Of the steps that lanes read at once, every other one lies 64 bytes further: those are neighbours, or two apart.
    weights_at_ = step * kStepBytes + (c ^ ((T::kFp8 ? step & 1 : step >> 1 & 1) << 2)) * kChunk;

    inputs_left_ = static_cast<int>(p.shape.cols) - (T::kFp8 ? 0 : lane * 4);
    const int first = CopiedToken<T>(thread);
    tokens_left_ = tile.tokens - first;
    inputs_at_ = T::kWeightBytes + first * kSwizzledRowBytes;
    inputs_at_ += T::kFp8 ? SwizzledPlace(first, lane) * kChunk
                          : SwizzledPlace(first, (lane & 1) * 2 + (lane >> 2)) * kChunk + (lane >> 1 & 1) * 8;
#pragma unroll
    for (int i = 0; i < T::kCopied; ++i) {
      const int token = first + i * kTokensAtOnce;
      const int64_t row = token < tile.tokens ? InputRow(p, tile, token) : 0;
      inputs_[i] = T::kFp8 ? p.shape.codes + row * p.code_row_bytes + lane * kChunk
                           : reinterpret_cast<const uint8_t*>(p.shape.x + row * p.shape.x_stride + lane * 4);
    }
  }

  // Begins the copies of the stage to `stage`. The stages come in order.
  __device__ __forceinline__ void Next(int thread, uint8_t* stage) {
    uint8_t* const weights = stage + weights_at_;
#pragma unroll
    for (int half = 0; half < T::kRowGroups; ++half) {
#pragma unroll
      for (int i = 0; i < kSteps / kStepsAtOnce; ++i) {
        CopyAsync16(weights + half * kGroupBytes + i * (kStepsAtOnce * kStepBytes),
                    weights_[half] + i * (kStepsAtOnce * kStepBytes),
                    i * kStepsAtOnce < steps_left_[half] ? kChunk : 0);
      }
      weights_[half] += kGroupBytes;
      steps_left_[half] -= kSteps;
    }

    if (T::kTokens >= kTokensAtOnce || thread < T::kTokens * T::kTokenLanes) {
      constexpr int kParts = T::kFp8 ? 1 : kCols / 32;  // of 32 inputs, of which the thread has four
      [[maybe_unused]] int valid[kParts];
#pragma unroll
      for (int j = 0; j < kParts; ++j) {
        valid[j] = T::kFp8 ? (inputs_left_ > 0 ? kChunk : 0) : min(8, max(0, 2 * inputs_left_ - 64 * j));
      }
#pragma unroll
      for (int i = 0; i < T::kCopied; ++i) {
#pragma unroll
        for (int j = 0; j < kParts; ++j) {
          const int bytes = i * kTokensAtOnce < tokens_left_ ? valid[j] : 0;
          // Of a row's 8 chunks, every second 32 inputs have the last four.
          uint8_t* const at = stage + (inputs_at_ ^ (j % 2 * 4 * kChunk)) + i * (kTokensAtOnce * kSwizzledRowBytes) +
                              j / 2 * T::kPartBytes;
          if constexpr (T::kFp8) {
            CopyAsync16(at, inputs_[i], bytes);
          } else {
            CopyAsync8(at, inputs_[i] + 64 * j, bytes);
          }
        }
        inputs_[i] += T::kFp8 ? kCols : 2 * kCols;
      }
    }
    inputs_left_ -= kCols;
  }

 private:
  static constexpr int kStepsAtOnce = T::kThreads / kStepChunks;
  static constexpr int kTokensAtOnce = T::kThreads / T::kTokenLanes;

  int steps_left_[T::kRowGroups];  // from the thread's first of the stage on
  int inputs_left_;                // from the stage's first on; BF16: from the thread's first
  int tokens_left_;                // from the thread's first on
  int weights_at_, inputs_at_;
  const uint8_t* weights_[T::kRowGroups];
  const uint8_t* inputs_[T::kCopied];
};

// A token's scales, in order. Zeros past the last one, and of tokens that do not exist.
class TokenScales {
 public:
  template <typename T>
  static __device__ __forceinline__ TokenScales Of(const LinearParams& p, const BlockTile& tile, int thread) {
    TokenScales scales;
    if (thread >= tile.tokens) return scales;
    scales.left_ = p.code_spans;
    scales.at_ = p.shape.codes + InputRow(p, tile, thread) * p.code_row_bytes + p.code_spans * kFp8Span;
    return scales;
  }
  __device__ __forceinline__ float Next() {
    const float scale = left_ > 0 ? *reinterpret_cast<const float*>(at_) : 0.0f;
    at_ += sizeof(float);
    --left_;
    return scale;
  }

 private:
  int left_ = 0;
  const uint8_t* at_ = nullptr;
};

// Operand A of product j of a stage. first: the lane's first word of the stage's weights.
template <typename T>
__device__ __forceinline__ void LoadWeights(const uint8_t* weights, int first, int t, int j, uint32_t (&a)[4],
                                            [[maybe_unused]] uint32_t& nan_codes) {
  const auto word = [weights](int at) { return *reinterpret_cast<const uint32_t*>(weights + at); };
  if constexpr (T::kFp8) {
    // Half of the lanes read inputs 2 and 3 of a step first: the others' words are then in other banks.
    const unsigned even = t < 2 ? 0x5410 : 0x1054, odd = t < 2 ? 0x7632 : 0x3276;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int step = (8 * j + 4 * i) * kStepBytes;
      const uint32_t one = word(first + step), other = word((first ^ 8) + step);
      a[2 * i] = __byte_perm(one, other, even);
      a[2 * i + 1] = __byte_perm(one, other, odd);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t codes = word(first + (j / 2 * 8 + j % 2 + 4 * i) * kStepBytes);
      nan_codes |= (codes & 0x7f7f7f7fu) + 0x01010101u;
      a[2 * i] = ScaleE4M3(MoveE4M3<0>(codes));
      a[2 * i + 1] = ScaleE4M3(MoveE4M3<2>(codes));
    }
  }
}
template <typename T>
__device__ __forceinline__ int FirstWord(int warp, int g, int t) {
  const int c = warp % 4 * 4 + g / 2, pair = g % 2;
  if (T::kFp8) return t * kStepBytes + (c ^ ((t & 1) << 2)) * kChunk + ((t & 2) + pair) * 4;
  return (t & 2) * kStepBytes + (c ^ ((t & 2) << 1)) * kChunk + ((t & 1) * 2 + pair) * 4;
}

// `scale` for each of the lane's two rows, or NaN where the row has had NaN codes. nan_codes: bits 7 and 15 for those
// of the first row, 23 and 31 for those of the second; cleared. All lanes call it: four of them share the inputs of a
// row.
__device__ __forceinline__ void ScalesOfRows(float scale, uint32_t& nan_codes, float (&of_rows)[2]) {
  of_rows[0] = of_rows[1] = scale;
  if (__ballot_sync(kAllLanes, (nan_codes & 0x80808080u) != 0) != 0) {
    nan_codes |= __shfl_xor_sync(kAllLanes, nan_codes, 1);
    nan_codes |= __shfl_xor_sync(kAllLanes, nan_codes, 2);
    const float nan = __uint_as_float(0x7fc00000u);
    if ((nan_codes & 0x00008080u) != 0) of_rows[0] = nan;
    if ((nan_codes & 0x80800000u) != 0) of_rows[1] = nan;
  }
  nan_codes = 0;
}

// Adds scaled sums of a block of inputs. scales: of the weights' rows. greatest: FP8 inputs' greatest magnitudes, of
// two neighbouring tokens in a word, of which the scales are 1 / 448.
template <typename T>
__device__ __forceinline__ void AddScaled(const float (&sums)[T::kSums], const float (&scales)[2],
                                          const uint32_t* greatest, float (&totals)[T::kSums]) {
#pragma unroll
  for (int n = 0; n < T::kSums / 4; ++n) {
    float scale[2] = {scales[0], scales[1]};
    if constexpr (T::kFp8) {
      const uint32_t pair = greatest[4 * n];
      scale[0] = scales[0] * __uint_as_float(pair << 16);
      scale[1] = scales[0] * __uint_as_float(pair & 0xffff0000u);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& total = totals[4 * n + i];
      total = fmaf(sums[4 * n + i], scale[T::kFp8 ? i % 2 : i / 2], total);
    }
  }
}

// Bias, activation and store. totals[h][4 n + i]: row i / 2 of the lane's two, token 8 n + 2 t + i % 2 of half h. Lanes
// of neighbouring g exchange halves, and have four rows of one token each.
template <typename T>
__device__ __forceinline__ void Finish(const LinearParams& p, const BlockTile& tile, int thread, uint8_t* shared,
                                       const float (&totals)[T::kHalves][T::kSums]) {
  const int warp = thread / 32, group = warp / 4, g = thread % 32 / 4, t = thread % 4, pair = g % 2;
  const int chunk = warp % 4 * 4 + g / 2;
  const bool is_up = T::kGateUp && group == 1;
  const int64_t row = tile.row_tile * T::kOutputRows + (T::kGateUp ? 0 : group * kRowGroup) + 4 * chunk;
  const int valid = static_cast<int>(min(int64_t{4}, p.shape.rows - row));
  const float* const bias = MatrixOf<T>(p, tile, group).bias;
  float biases[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (bias != nullptr && i < valid) biases[i] = bias[row + i];
  }
  // use(token, values) of all quads of the lane.
  const auto each = [&](const auto& use) {
#pragma unroll
    for (int h = 0; h < T::kHalves; ++h) {
#pragma unroll
      for (int n = 0; n < T::kSums / 4; ++n) {
        const float* const at = totals[h] + 4 * n;
        const float low = __shfl_xor_sync(kAllLanes, pair == 0 ? at[1] : at[0], 4);
        const float high = __shfl_xor_sync(kAllLanes, pair == 0 ? at[3] : at[2], 4);
        float values[4] = {pair == 0 ? at[0] : low, pair == 0 ? at[2] : high, pair == 0 ? low : at[1],
                           pair == 0 ? high : at[3]};
        if (bias != nullptr) {
#pragma unroll
          for (int i = 0; i < 4; ++i) values[i] += biases[i];
        }
        use(h * T::kHalfTokens + 8 * n + 2 * t + pair, values);
      }
    }
  };
  const auto store = [&](int token, const float(&values)[4]) {
    if (valid > 0 && token < tile.tokens) StoreOutputs(p, tile.first_token + token, row, valid, values);
  };
  if constexpr (!T::kGateUp) {
    each(store);
  } else {
    __syncthreads();  // all reads of the stages are done
    if (is_up) {
      each([&](int token, const float(&values)[4]) {
        *UpResult(shared, token, chunk) = make_float4(values[0], values[1], values[2], values[3]);
      });
    }
    __syncthreads();
    if (is_up) return;
    each([&](int token, const float(&values)[4]) {
      const float4 up = *UpResult(shared, token, chunk);
      const float activated[4] = {Activated(p.shape, values[0], up.x), Activated(p.shape, values[1], up.y),
                                  Activated(p.shape, values[2], up.z), Activated(p.shape, values[3], up.w)};
      store(token, activated);
    });
  }
}

template <typename T>
__device__ __forceinline__ void ComputeTile(const LinearParams& p, const BlockTile& tile) {
  constexpr int kStages = T::kStages, kHalves = T::kHalves;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, group = warp / 4, g = thread % 32 / 4, t = thread % 4;
  const int stages = static_cast<int>((p.shape.cols + kCols - 1) / kCols);
  uint8_t* const shared = SwizzledShared();
  StageCopies<T> copies(p, tile, thread);
  const float* weight_scale =
      MatrixOf<T>(p, tile, group).scales + tile.row_tile * T::kOutputRows / kScaleBlock * stages;
  const int first_word = group * kGroupBytes + FirstWord<T>(warp, g, t);
  const uint64_t first_column = SwizzledRows(shared + T::kWeightBytes);

  float totals[kHalves][T::kSums] = {};
  float sums[kHalves][T::kSums];
  uint32_t a[2][kBatch][4];
  [[maybe_unused]] TokenScales token_scales;
  [[maybe_unused]] float token_scale = 0;  // of the next stage
  if constexpr (T::kFp8) {
    token_scales = TokenScales::Of<T>(p, tile, thread);
    token_scale = token_scales.Next();
  }
  uint32_t nan_codes = 0;  // BF16: of the lane's rows, since the last scales

  // Adds half h of the stage's sums to the totals.
  const auto add = [&](int stage, int h, const float(&scales)[2]) {
    const auto* const greatest = reinterpret_cast<const uint32_t*>(shared + T::kGreatestAt);
    AddScaled<T>(sums[h], scales, greatest + stage % 2 * (T::kTokens / 2) + h * (T::kHalfTokens / 2) + t, totals[h]);
  };
  const auto scales_of = [&](int stage, float(&scales)[2]) {
    const float scale = stage < stages ? weight_scale[stage] : 0.0f;
    if constexpr (T::kFp8) {
      scales[0] = scales[1] = scale * (1 / kGreatestE4M3);
    } else {
      ScalesOfRows(scale, nan_codes, scales);
    }
  };

#pragma unroll
  for (int stage = 0; stage < kStages - 2; ++stage) {
    copies.Next(thread, shared + stage * T::kStageBytes);
    CommitCopies();
  }
  int slot = 0, next_slot = kStages - 2;  // of the stage, and of the one that is copied meanwhile
#pragma unroll 1
  for (int first = 0; first < stages; first += kRound) {
    float scales[2] = {};  // of the stage before
#pragma unroll
    for (int i = 0; i < kRound; ++i) {
      const int stage = first + i;
      WaitCopies<kStages - 3>();
      FenceWrites();
      __syncthreads();  // the stage has arrived, and all are done with the stage to be overwritten
      copies.Next(thread, shared + next_slot * T::kStageBytes);
      CommitCopies();
      if constexpr (T::kFp8) {
        if (thread < T::kTokens) {
          reinterpret_cast<uint16_t*>(shared + T::kGreatestAt)[stage % 2 * T::kTokens + thread] =
              static_cast<uint16_t>(PackBf16(token_scale * kGreatestE4M3, 0.0f));
        }
        token_scale = token_scales.Next();
      }
      const uint8_t* const weights = shared + slot * T::kStageBytes;
      const uint64_t columns = Further(first_column, slot * T::kStageBytes);
      if (i > 0) scales_of(stage - 1, scales);
#pragma unroll
      for (int batch = 0; batch < T::kBatches; ++batch) {
        auto& operands = a[batch % 2];
        if (i > 0 || batch > 1) WaitProducts<kHalves>(operands[0], operands[1]);
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          LoadWeights<T>(weights, first_word, t, batch * kBatch + j, operands[j], nan_codes);
        }
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          if (i > 0 && batch == 0) {
            WaitProducts<kHalves - 1>(sums[h]);
            add(stage - 1, h, scales);
          }
          FenceProducts();
#pragma unroll
          for (int j = 0; j < kBatch; ++j) {
            const int product = batch * kBatch + j;
            const int part = product / 4, in_row = product % 4 * 32;
            const uint64_t b =
                Further(columns, part * T::kPartBytes + h * (T::kHalfTokens * kSwizzledRowBytes) + in_row);
            if constexpr (T::kFp8) {
              ProductE4M3(sums[h], operands[j], b, product > 0);
            } else {
              ProductBf16(sums[h], operands[j], b, product > 0);
            }
          }
          CommitProducts();
        }
      }
      slot = slot + 1 == kStages ? 0 : slot + 1;
      next_slot = next_slot + 1 == kStages ? 0 : next_slot + 1;
    }
    // ptxas would make products wait for each other if those of one round ran into the next, whose sums are read there.
    const int last = first + kRound - 1;
    scales_of(last, scales);
    if constexpr (T::kFp8) __syncthreads();  // the last stage's greatest inputs are there
    if constexpr (kHalves == 2) {
      WaitProducts<1>(sums[0]);
      add(last, 0, scales);
    }
    WaitProducts<0>(sums[kHalves - 1]);
    add(last, kHalves - 1, scales);
  }
  WaitCopies<0>();
  Finish<T>(p, tile, thread, shared, totals);
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads) WgmmaLinearKernel(const __grid_constant__ LinearParams p) {
  BeginKernel();
  for (int64_t index = blockIdx.x; kHasProducts && index < p.row_tiles * p.token_tiles; index += gridDim.x) {
    const BlockTile tile = FindTile<T>(p, index);
    if (tile.tokens == 0) return;              // as all that follow: the groups' tiles come first
    if (index != blockIdx.x) __syncthreads();  // shared memory may be overwritten
    ComputeTile<T>(p, tile);
  }
}

// Of an attribute of the current device, 0 where it is unknown.
int AttributeOfDevice(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  return cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess
             ? value
             : 0;
}

// As many blocks as run at once: 164 and 193 KiB of shared memory for many tokens, 110 KiB for few.
template <bool kGateUp, bool kFp8>
LaunchResult LaunchTiles(const LinearParams& p, int tile_tokens, Stream stream) {
  const int64_t processors = max(1, AttributeOfDevice(cudaDevAttrMultiProcessorCount));
  if (tile_tokens == kLargeTile) {
    using Large = WgmmaTile<kGateUp, kFp8, kLargeTile, kFp8 ? 5 : 4>;
    return LaunchTiling<Large, kMaxSharedBytes90>(WgmmaLinearKernel<Large>, p, stream, processors);
  }
  if constexpr (kFp8) {
    if (tile_tokens == kSmallTile) {
      using Small = WgmmaTile<kGateUp, kFp8, kSmallTile, 6>;
      return LaunchTiling<Small, kMaxSharedBytes90>(WgmmaLinearKernel<Small>, p, stream, 2 * processors);
    }
  }
  return {kInvalidArgument};
}

template <bool kGateUp>
LaunchResult LaunchInputs(LinearParams p, int tile_tokens, Stream stream) {
  if (p.shape.codes == nullptr) return LaunchTiles<kGateUp, false>(p, tile_tokens, stream);
  p.code_spans = static_cast<int>(Fp8Spans(p.shape.cols));
  p.code_row_bytes = Fp8RowBytes(p.shape.cols);
  return LaunchTiles<kGateUp, true>(p, tile_tokens, stream);
}

// MOESTRO_WGMMA: the build is for sm_90a, too.
#if defined(MOESTRO_WGMMA) || !defined(__CUDACC__)
constexpr bool kBuilt = true;
#else
constexpr bool kBuilt = false;
#endif

}  // namespace

bool HasWgmma() {
  // A variable, because one switch then serves tests and benches, which take both kinds of products on one GPU, and a
  // node whose driver is found to get one wrong: no process needs a flag of its own.
  const char* const setting = std::getenv("MOESTRO_WGMMA");
  if (setting != nullptr && std::strcmp(setting, "off") == 0) return false;
  return kBuilt && AttributeOfDevice(cudaDevAttrComputeCapabilityMajor) == 9;
}

LaunchResult LaunchWgmmaLinear(LinearParams params, bool gate_up, int tile_tokens, Stream stream) {
  return gate_up ? LaunchInputs<true>(params, tile_tokens, stream) : LaunchInputs<false>(params, tile_tokens, stream);
}

}  // namespace moestro::cuda
