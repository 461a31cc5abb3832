// A block computes 32 heads of one row over one split. Cached vectors pass through shared memory, 32 tokens at a time;
// the next ones are copied meanwhile (cp.async). They take at most 36 KB, which both products read.
//   scores   Eight warps: two groups of 16 heads x four slices of the key's elements (every fourth step of 16). A warp
//            keeps its part of the queries in registers as operand A. Slices are summed in order, through shared
//            memory.
//   softmax  Eight threads per head.
//   values   Each warp computes every eighth 16 columns, for all 32 heads.
// So no query is read twice, and a vector is read from memory once per 32 heads by blocks that run together.
//
// A vector in shared memory begins with the part that is summed as the value. MLA: the cached vector itself. GQA: a kv
// head's value, then its key, where scores begin.
#include <cuda_runtime.h>

#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/reduce.cuh"
#include "common/kernels/cuda/silu.cuh"

namespace moestro::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kHeads = 32;
constexpr int kTokens = 32;  // per stage
constexpr int kPageTokens = 64;
constexpr int kMinSplitStages = 2;
constexpr int kSlices = 4;
constexpr int kSliceSteps = static_cast<int>(kDecodeMaxKeyDim) / kSlices / 16;
constexpr int kWarpColumns = static_cast<int>(kDecodeMaxLatent) / kWarps;
constexpr int kStepColumns = 16;   // value columns that a warp computes together
constexpr int kChunkElements = 8;  // BF16 elements in 16 bytes
constexpr int kVectorBytes = static_cast<int>(kDecodeMaxKeyDim) * 2;
constexpr int kVectorChunks = kVectorBytes / 16;
constexpr int kStageBytes = kTokens * kVectorBytes;
constexpr int kScoreStride = kTokens + 8;  // rows that a warp writes together start at different banks
constexpr int kScoreBytes = kSlices * kHeads * kScoreStride * static_cast<int>(sizeof(float));
constexpr int kWeightBytes = kHeads * kTokens * 2;
constexpr int kSharedBytes = 2 * kStageBytes + kScoreBytes + kWeightBytes + kHeads * static_cast<int>(sizeof(float));
constexpr float kLog2E = 1.44269504088896340736f;
static_assert(kSharedBytes <= kMaxSharedBytes);
static_assert(kSlices * kSliceSteps * 16 == kDecodeMaxKeyDim && kVectorChunks % 8 == 0);
static_assert(kWarps == 2 * kSlices && kWarps * 4 == kHeads && kMaxSplits <= 64, "the thread numbering below");

// Tokens per split for a row that reads `tokens` tokens: whole stages.
__device__ __forceinline__ int64_t SplitTokens(const DecodeAttentionArgs& args, int64_t tokens) {
  const int64_t stages = (tokens + kTokens - 1) / kTokens;
  return max(int64_t{kMinSplitStages}, (stages + args.splits - 1) / args.splits) * kTokens;
}

// The first token that a row with `visible` tokens sees.
__device__ __forceinline__ int64_t FirstSeen(const DecodeAttentionArgs& args, int64_t visible) {
  return args.window == 0 ? int64_t{0} : max(int64_t{0}, visible - args.window);
}

// Where its splits begin: at a whole stage.
__device__ __forceinline__ int64_t FirstRead(const DecodeAttentionArgs& args, int64_t visible) {
  return FirstSeen(args, visible) / kTokens * kTokens;
}

// Address of 16-byte chunk c of a token in a stage. Chunks are permuted by token, so that the 8 tokens of an ldmatrix
// at one chunk hit different banks.
__device__ __forceinline__ uint8_t* VectorChunk(uint8_t* stage, int token, int c) {
  return stage + token * kVectorBytes + (c ^ (token & 7)) * 16;
}
// A head's 32 weights, 64 bytes.
__device__ __forceinline__ uint8_t* WeightChunk(uint8_t* weights, int head, int c) {
  return weights + head * (kTokens * 2) + (c ^ ((head >> 1) & 3)) * 16;
}

// The vector parts in a token's cache entry: [0, value_dim) from `value` on, the others from `rest` on.
struct Vectors {
  int64_t value = 0;
  int64_t rest = 0;
  int value_dim = 0;
  int elements = 0;
  int64_t stride = 0;  // between tokens

  __device__ __forceinline__ int steps() const { return (elements + 15) / 16; }
  __device__ __forceinline__ int64_t At(int number) const {
    return number < value_dim ? value + number : rest + number - value_dim;
  }
};

// Copies a stage's vectors. Tokens from `tokens` on, and elements past a vector's end, become zeros: their weights are
// 0, and 0 times their values must be 0.
__device__ __forceinline__ void CopyStage(const uint16_t* from, int tokens, const Vectors& vectors, uint8_t* stage) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int token = warp; token < kTokens; token += kWarps) {
#pragma unroll
    for (int c = lane; c < kVectorChunks; c += 32) {
      if (c >= 2 * vectors.steps()) continue;
      const bool exists = token < tokens && c * kChunkElements < vectors.elements;
      CopyAsync16(VectorChunk(stage, token, c),
                  exists ? from + token * vectors.stride + vectors.At(c * kChunkElements) : from, exists ? 16 : 0);
    }
  }
}

// Two elements of a head's query, from `number` of the vector on. Zeros past its end, and where the vector is not a
// key.
__device__ __forceinline__ uint32_t QueryPair(const DecodeAttentionArgs& args, int64_t row, int64_t head,
                                              int64_t number, int64_t elements) {
  const bool is_latent = number < args.latent;
  if (number >= elements || (is_latent && args.kv_heads > 0)) return 0;
  const QueryPart& part = is_latent ? args.latent_queries : args.rotated_queries;
  const uint16_t* from =
      part.data + row * part.row_stride + head * part.head_stride + (is_latent ? number : number - args.latent);
  return *reinterpret_cast<const uint32_t*>(from);
}

// Adds the scores of the warp's 16 heads over its slice of the elements, for the stage's tokens.
__device__ __forceinline__ void AddSlice(const uint32_t (&q)[kSliceSteps][4], uint8_t* stage, int slice, int first_step,
                                         int steps, int lane, float (&sums)[kTokens / 8][4]) {
  const int matrix = lane / 8, row = lane % 8;
#pragma unroll
  for (int k = 0; k < kSliceSteps; ++k) {
    const int step = k * kSlices + slice;
    if (step < first_step || step >= steps) continue;
#pragma unroll
    for (int n = 0; n < kTokens / 8; n += 2) {
      uint32_t b[4];  // two fragments of 8 tokens, two registers each
      LoadMatrixX4(b, VectorChunk(stage, n * 8 + matrix / 2 * 8 + row, 2 * step + matrix % 2));
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      MmaBf16(sums[n], q[k], first);
      MmaBf16(sums[n + 1], q[k], second);
    }
  }
}

// The first of eight columns of the warp.
__device__ __forceinline__ int WarpColumn(int warp, int n) {
  return (n / 2 * kWarps + warp) * kStepColumns + n % 2 * 8;
}

// out += weights * values, for the warp's columns of all heads.
__device__ __forceinline__ void AddValues(uint8_t* weights, uint8_t* stage, int warp, int latent, int lane,
                                          float (&out)[kHeads / 16][kWarpColumns / 8][4]) {
  const int matrix = lane / 8, row = lane % 8;
#pragma unroll
  for (int k = 0; k < kTokens / 16; ++k) {
    uint32_t a[kHeads / 16][4];
#pragma unroll
    for (int m = 0; m < kHeads / 16; ++m) {
      LoadMatrixX4(a[m], WeightChunk(weights, m * 16 + matrix % 2 * 8 + row, 2 * k + matrix / 2));
    }
#pragma unroll
    for (int n = 0; n < kWarpColumns / 8; n += 2) {
      const int chunk = WarpColumn(warp, n) / kChunkElements;
      if (chunk * kChunkElements >= latent) continue;
      uint32_t b[4];
      LoadMatrixX4Transposed(b, VectorChunk(stage, k * 16 + matrix % 2 * 8 + row, chunk + matrix / 2));
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
#pragma unroll
      for (int m = 0; m < kHeads / 16; ++m) {
        MmaBf16(out[m][n], a[m], first);
        MmaBf16(out[m][n + 1], a[m], second);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads) DecodeAttentionKernel(DecodeAttentionArgs args) {
  BeginKernel();
  const int64_t row = blockIdx.z, split = blockIdx.y;
  const bool grouped = args.kv_heads > 0;
  const int64_t group = grouped ? args.heads / args.kv_heads : args.heads;
  const int64_t blocks = (group + kHeads - 1) / kHeads;  // per group
  const int64_t kv_head = blockIdx.x / blocks;
  const int64_t first_head = kv_head * group + blockIdx.x % blocks * kHeads, end_head = (kv_head + 1) * group;
  const int64_t visible = int64_t{args.positions[row]} + 1;
  const int64_t split_tokens = SplitTokens(args, visible - FirstRead(args, visible));
  const int64_t begin = FirstRead(args, visible) + split * split_tokens;
  if (begin >= visible) return;
  const int tokens = static_cast<int>(min(split_tokens, visible - begin));
  const int hidden = static_cast<int>(max(int64_t{0}, FirstSeen(args, visible) - begin));  // of the first stage
  const int stages = (tokens + kTokens - 1) / kTokens;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const int head_group = warp % 2, slice = warp / 2;
  const int latent = static_cast<int>(args.latent);
  const Vectors vectors{.value = grouped ? args.pages.kv_dim / 2 + kv_head * latent : 0,
                        .rest = grouped ? kv_head * latent : latent,
                        .value_dim = latent,
                        .elements = grouped ? 2 * latent : static_cast<int>(args.pages.kv_dim),
                        .stride = args.pages.kv_dim};
  const int first_step = grouped ? latent / 16 : 0;  // first step of the scores

  uint8_t* const shared = DynamicShared();
  float* const scores = reinterpret_cast<float*>(shared + 2 * kStageBytes);  // [kSlices, kHeads, kScoreStride]
  uint8_t* const weights = shared + 2 * kStageBytes + kScoreBytes;
  float* const factors = reinterpret_cast<float*>(weights + kWeightBytes);  // [kHeads]

  const uint32_t* const pages = args.pages.list + args.first_page[row];
  const auto copy_stage = [&](int stage) {
    const int64_t token = begin + int64_t{stage} * kTokens;
    const uint8_t* const page = args.pages.pages +
                                pages[token / kPageTokens] * static_cast<uint64_t>(args.pages.page_bytes) +
                                args.pages.layer_offset;
    const uint16_t* const from = reinterpret_cast<const uint16_t*>(page) + token % kPageTokens * vectors.stride;
    CopyStage(from, tokens - stage * kTokens, vectors, shared + stage % 2 * kStageBytes);
    CommitCopies();
  };

  copy_stage(0);
  uint32_t q[kSliceSteps][4];
#pragma unroll
  for (int k = 0; k < kSliceSteps; ++k) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int64_t query_head = first_head + head_group * 16 + g + r % 2 * 8;
      const int number = (k * kSlices + slice) * 16 + r / 2 * 8 + 2 * t;
      q[k][r] = query_head < end_head ? QueryPair(args, row, query_head, number, vectors.elements) : 0;
    }
  }
  // Softmax: this thread's head, and four of the stage's tokens.
  const int head = warp * 4 + lane / 8, first_token = lane % 8 * 4;
  const float scale = args.scale * kLog2E;
  float max_score = __uint_as_float(0xff800000u);  // scores times log2(e)
  float sum = 0;                                   // this thread's weights only
  float out[kHeads / 16][kWarpColumns / 8][4] = {};

  for (int stage = 0; stage < stages; ++stage) {
    WaitCopies<0>();
    __syncthreads();  // the stage has arrived, and all threads are done with the previous one
    if (stage + 1 < stages) copy_stage(stage + 1);
    uint8_t* const staged = shared + stage % 2 * kStageBytes;

    float sums[kTokens / 8][4] = {};
    AddSlice(q, staged, slice, first_step, vectors.steps(), lane, sums);
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float* const to = scores + (slice * kHeads + head_group * 16 + g + 8 * i) * kScoreStride + n * 8 + 2 * t;
        *reinterpret_cast<float2*>(to) = make_float2(sums[n][2 * i], sums[n][2 * i + 1]);
      }
    }
    __syncthreads();

    float score[4] = {};
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      const float4 part = *reinterpret_cast<const float4*>(scores + (s * kHeads + head) * kScoreStride + first_token);
      score[0] += part.x;
      score[1] += part.y;
      score[2] += part.z;
      score[3] += part.w;
    }
    float greatest = max_score;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = stage * kTokens + first_token + i;
      score[i] = token >= hidden && token < tokens ? score[i] * scale : __uint_as_float(0xff800000u);
      greatest = fmaxf(greatest, score[i]);
    }
#pragma unroll
    for (int lanes = 4; lanes > 0; lanes /= 2) greatest = fmaxf(greatest, __shfl_xor_sync(kAllLanes, greatest, lanes));
    const float rescale = Exp2(max_score - greatest);
    max_score = greatest;
    const uint32_t low = PackBf16(Exp2(score[0] - greatest), Exp2(score[1] - greatest));
    const uint32_t high = PackBf16(Exp2(score[2] - greatest), Exp2(score[3] - greatest));
    sum = sum * rescale + (__uint_as_float(low << 16) + __uint_as_float(low & 0xffff0000u) +
                           __uint_as_float(high << 16) + __uint_as_float(high & 0xffff0000u));
    *reinterpret_cast<uint2*>(WeightChunk(weights, head, first_token / 8) + first_token % 8 * 2) =
        make_uint2(low, high);
    if (first_token == 0) factors[head] = rescale;
    __syncthreads();

#pragma unroll
    for (int m = 0; m < kHeads / 16; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float factor = factors[m * 16 + g + 8 * i];
#pragma unroll
        for (int n = 0; n < kWarpColumns / 8; ++n) {
          out[m][n][2 * i] *= factor;
          out[m][n][2 * i + 1] *= factor;
        }
      }
    }
    AddValues(weights, staged, warp, latent, lane, out);
  }

#pragma unroll
  for (int lanes = 4; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  __syncthreads();  // all threads have read the last factors
  const int64_t results = (row * kMaxSplits + split) * args.heads + first_head;
  if (first_token == 0) {
    factors[head] = sum;
    if (first_head + head < end_head) args.log_sum[results + head] = max_score / kLog2E + logf(sum);
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kHeads / 16; ++m) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int out_head = m * 16 + g + 8 * i;
      if (first_head + out_head >= end_head) continue;
      const float total = factors[out_head];
      float* const to = args.partial + (results + out_head) * latent + 2 * t;
#pragma unroll
      for (int n = 0; n < kWarpColumns / 8; ++n) {
        const int column = WarpColumn(warp, n);
        if (column >= latent) continue;
        *reinterpret_cast<float2*>(to + column) = make_float2(out[m][n][2 * i] / total, out[m][n][2 * i + 1] / total);
      }
    }
  }
}

constexpr int kMergeThreads = static_cast<int>(kDecodeMaxLatent) / 4;

// One block per row and head. Lane s of every warp has the weights of the splits s and s + 32.
__global__ void __launch_bounds__(kMergeThreads) MergeSplitsKernel(DecodeAttentionArgs args) {
  BeginKernel();
  const int64_t head = blockIdx.x, row = blockIdx.y;
  const int64_t visible = int64_t{args.positions[row]} + 1;
  const int64_t read = visible - FirstRead(args, visible), split_tokens = SplitTokens(args, read);
  const int splits = static_cast<int>((read + split_tokens - 1) / split_tokens);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first = row * kMaxSplits * args.heads + head;
  const auto log_sum = [&](int split) {
    return split < splits ? args.log_sum[first + split * args.heads] : __uint_as_float(0xff800000u);
  };
  const float log_sums[2] = {log_sum(lane), log_sum(lane + 32)};
  const float greatest = WarpMax(fmaxf(log_sums[0], log_sums[1]));
  const float weights[2] = {expf(log_sums[0] - greatest), expf(log_sums[1] - greatest)};
  const float sum = WarpSum(weights[0] + weights[1]);
  const float share = ShareOfTokens(args.sinks, head, greatest + logf(sum));
  const int64_t column = int64_t{threadIdx.x} * 4;
  float total[4] = {};
#pragma unroll 4
  for (int split = 0; split < splits; ++split) {
    const float split_weight = __shfl_sync(kAllLanes, split < 32 ? weights[0] : weights[1], split % 32);
    if (column >= args.latent) continue;
    const float4 part =
        *reinterpret_cast<const float4*>(args.partial + (first + split * args.heads) * args.latent + column);
    total[0] = fmaf(split_weight, part.x, total[0]);
    total[1] = fmaf(split_weight, part.y, total[1]);
    total[2] = fmaf(split_weight, part.z, total[2]);
    total[3] = fmaf(split_weight, part.w, total[3]);
  }
  if (column >= args.latent) return;
  *reinterpret_cast<uint2*>(args.out + (row * args.heads + head) * args.latent + column) =
      make_uint2(PackBf16(total[0] / sum * share, total[1] / sum * share),
                 PackBf16(total[2] / sum * share, total[3] / sum * share));
}

// Whether the kernel supports the dimensions of latents and keys.
bool HasDimensions(const DecodeAttentionArgs& args) {
  const int64_t kv_dim = args.pages.kv_dim;
  if (args.heads < 1 || args.latent < 8 || args.window < 0) return false;
  if (args.kv_heads == 0) {
    return args.window == 0 && args.sinks == nullptr && args.latent <= kDecodeMaxLatent && args.latent % 8 == 0 &&
           kv_dim >= args.latent && kv_dim <= kDecodeMaxKeyDim && kv_dim % 8 == 0;
  }
  return args.kv_heads > 0 && args.heads % args.kv_heads == 0 && kv_dim == 2 * args.kv_heads * args.latent &&
         args.latent % 16 == 0 && 2 * args.latent <= kDecodeMaxKeyDim;
}

bool IsAligned(const void* p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }
bool IsAligned(const QueryPart& part) {
  return IsAligned(part.data, 4) && part.row_stride % 2 == 0 && part.head_stride % 2 == 0;
}

}  // namespace

int64_t DecodeSplits(int64_t blocks, int64_t multiprocessors) {
  constexpr int kMostWaves = 4;
  int64_t best = 1;
  double most_busy = 0;
  for (int64_t wave = 1; wave <= kMostWaves; ++wave) {
    const int64_t places = wave * multiprocessors;
    const int64_t splits = places / blocks < kMaxSplits ? places / blocks : int64_t{kMaxSplits};
    const double busy = static_cast<double>(splits * blocks) / static_cast<double>(places);
    if (busy <= most_busy + 0.05) continue;  // longer splits leave less to merge
    best = splits;
    most_busy = busy;
  }
  return best;
}

LaunchResult LaunchDecodeAttention(const DecodeAttentionArgs& wanted, Stream stream) {
  DecodeAttentionArgs args = wanted;
  if (args.rows == 0) return {};
  const KvPagesView& pages = args.pages;
  if (args.rows > 65535 || args.splits < 0 || args.splits > kMaxSplits || !HasDimensions(args) ||
      pages.page_tokens != kPageTokens || pages.list == nullptr || !IsAligned(pages.pages, 16) ||
      pages.page_bytes % 16 != 0 || pages.layer_offset % 16 != 0 || !IsAligned(args.latent_queries) ||
      !IsAligned(args.rotated_queries) || !IsAligned(args.partial, 16) || !IsAligned(args.out, 8)) {
    return {kInvalidArgument};
  }
  const int64_t groups = args.kv_heads > 0 ? args.kv_heads : 1;
  const int64_t blocks = groups * ((args.heads / groups + kHeads - 1) / kHeads);
  if (args.splits == 0) args.splits = DecodeSplits(blocks, Multiprocessors());
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(args.splits), static_cast<unsigned>(args.rows));
  const LaunchResult result =
      Launch("decode_attention", DecodeAttentionKernel, grid, dim3(kThreads), kSharedBytes, stream, args);
  if (!result.ok()) return result;
  return Launch("merge_splits", MergeSplitsKernel,
                dim3(static_cast<unsigned>(args.heads), static_cast<unsigned>(args.rows)), dim3(kMergeThreads), 0,
                stream, args);
}

}  // namespace moestro::cuda
