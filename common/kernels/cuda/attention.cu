// A block computes 128 queries of one head, 16 per warp. Keys and values pass through shared memory, 64 tokens at a
// time; the next ones are copied meanwhile (cp.async). Queries stay in registers as operand A of S = Q K^T. The
// accumulators of S become weights, operand A of O += P V. In shared memory, the 16-byte chunks of keys and values are
// permuted by row, so that the 8 rows of an ldmatrix at one column hit different banks.
#include <cuda_runtime.h>

#include "common/kernels/cuda/attention.h"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/reduce.cuh"
#include "common/kernels/cuda/silu.cuh"

namespace moestro::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kQueries = 16 * kWarps;
constexpr int kTokens = static_cast<int>(kKvBlock);
constexpr int kTokenFragments = kTokens / 8;
constexpr int kChunkElements = 8;  // BF16 elements in 16 bytes
constexpr float kLog2E = 1.44269504088896340736f;

template <int kKeyDim, int kSharedDim, int kValueDim>
struct Geometry {
  static constexpr int kKeyBytes = kTokens * kKeyDim * 2;
  static constexpr int kBlockBytes = kKeyBytes + kTokens * kValueDim * 2;
  static constexpr int kSharedBytes = 2 * kBlockBytes;
  static_assert(kSharedBytes <= kMaxSharedBytes);
  static_assert(kKeyDim % 64 == 0 && kSharedDim % 8 == 0 && kValueDim % 64 == 0, "chunks are permuted in groups of 8");
};

// Address of 16-byte chunk c of row `row` in a tile with kDim elements per row.
template <int kDim>
__device__ __forceinline__ uint8_t* Chunk(uint8_t* tile, int row, int c) {
  return tile + row * kDim * 2 + (c ^ (row & 7)) * 16;
}

// Copies the chunks of `dim` elements of the block's tokens to chunks [first_chunk, ..) of the tile's rows. Tokens from
// `tokens` on become zeros: their weights are 0, and 0 times their values must be 0.
template <int kDim, int kChunks>
__device__ __forceinline__ void CopyVectors(const KvVectors& vectors, int64_t block, int tokens, int64_t kv_head,
                                            uint8_t* tile, int first_chunk) {
  constexpr int kStep = kThreads / kChunks;  // tokens that all threads copy together: rows with the same permutation
  static_assert(kThreads % kChunks == 0 && kStep % 8 == 0 && kTokens % kStep == 0);
  const int64_t page = vectors.pages == nullptr ? block : vectors.pages[block];
  const int first = static_cast<int>(threadIdx.x) / kChunks, c = static_cast<int>(threadIdx.x) % kChunks;
  const uint16_t* const vector = vectors.data + page * vectors.page_stride + kv_head * vectors.head_stride;
  const uint16_t* const from = vector + first * vectors.token_stride + c * kChunkElements;
  uint8_t* const to = Chunk<kDim>(tile, first, first_chunk + c);
#pragma unroll
  for (int token = 0; token < kTokens; token += kStep) {
    const bool exists = first + token < tokens;
    CopyAsync16(to + token * kDim * 2, exists ? from + token * vectors.token_stride : vector, exists ? 16 : 0);
  }
}

// A lane's state between blocks, for its two rows: g and g + 8 of the warp's rows.
template <int kValueDim>
struct RowState {
  float max_score[2];  // scores times log2(e)
  float sum[2];        // this lane's weights only
  float out[kValueDim / 8][4];
};

// S = Q K^T
template <int kKeyDim>
__device__ __forceinline__ void Scores(const uint32_t (&q)[kKeyDim / 16][4], uint8_t* keys, int lane,
                                       float (&scores)[kTokenFragments][4]) {
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] = 0;
  }
  const int matrix = lane / 8, row = lane % 8;
#pragma unroll
  for (int k = 0; k < kKeyDim / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kTokenFragments; n += 2) {
      uint32_t b[4];  // two fragments of 8 tokens, two registers each
      LoadMatrixX4(b, Chunk<kKeyDim>(keys, n * 8 + matrix / 2 * 8 + row, 2 * k + matrix % 2));
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      MmaBf16(scores[n], q[k], first);
      MmaBf16(scores[n + 1], q[k], second);
    }
  }
}

// One step of the online softmax. Scores times `scale`, which is positive, become weights, as operand A of O += P V.
// Row i sees tokens hidden[i] to visible[i] - 1 of the block.
template <int kValueDim>
__device__ __forceinline__ void Softmax(float (&scores)[kTokenFragments][4], float scale, const int (&hidden)[2],
                                        const int (&visible)[2], int t, RowState<kValueDim>& state,
                                        uint32_t (&weights)[kTokens / 16][4]) {
  float rescale[2], base[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float greatest = __uint_as_float(0xff800000u);
#pragma unroll
    for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[n][2 * i + e];
        const int token = n * 8 + 2 * t + e;
        score = token >= hidden[i] && token < visible[i] ? score : __uint_as_float(0xff800000u);
        greatest = fmaxf(greatest, score);
      }
    }
    greatest = fmaxf(greatest, __shfl_xor_sync(kAllLanes, greatest, 1));
    greatest = fmaxf(greatest, __shfl_xor_sync(kAllLanes, greatest, 2));
    greatest = fmaxf(state.max_score[i], greatest * scale);
    // A row without visible tokens so far keeps sums of 0, not NaN.
    base[i] = greatest == __uint_as_float(0xff800000u) ? 0.0f : greatest;
    rescale[i] = Exp2(state.max_score[i] - base[i]);
    state.max_score[i] = greatest;
    state.sum[i] *= rescale[i];
  }
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t pair =
          PackBf16(Exp2(fmaf(scores[n][2 * i], scale, -base[i])), Exp2(fmaf(scores[n][2 * i + 1], scale, -base[i])));
      state.sum[i] += __uint_as_float(pair << 16) + __uint_as_float(pair & 0xffff0000u);
      weights[n / 2][n % 2 * 2 + i] = pair;
    }
  }
#pragma unroll
  for (int n = 0; n < kValueDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state.out[n][i] *= rescale[i / 2];
  }
}

// O += P V
template <int kValueDim>
__device__ __forceinline__ void AddValues(const uint32_t (&weights)[kTokens / 16][4], uint8_t* values, int lane,
                                          RowState<kValueDim>& state) {
  const int matrix = lane / 8, row = lane % 8;
#pragma unroll
  for (int k = 0; k < kTokens / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kValueDim / 8; n += 2) {
      uint32_t b[4];
      LoadMatrixX4Transposed(b, Chunk<kValueDim>(values, k * 16 + matrix % 2 * 8 + row, n + matrix / 2));
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      MmaBf16(state.out[n], weights[k], first);
      MmaBf16(state.out[n + 1], weights[k], second);
    }
  }
}

template <int kKeyDim, int kSharedDim, int kValueDim>
__global__ void __launch_bounds__(kThreads) PrefillAttentionKernel(PrefillAttentionArgs args) {
  BeginKernel();
  using G = Geometry<kKeyDim, kSharedDim, kValueDim>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const int64_t head = blockIdx.y;
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  // The last tiles see the most tokens, so they begin first.
  const int64_t first_row = int64_t{gridDim.x - 1 - blockIdx.x} * kQueries;
  const int64_t last_row = min(args.rows, first_row + kQueries) - 1;
  // Positions count from the first token of the vectors; the block sees `tokens` of them.
  const int64_t position = args.position - args.first_token;
  const int64_t visible_tokens = max(int64_t{0}, position + last_row + 1);
  const int64_t tokens = args.tokens == 0 ? visible_tokens : min(args.tokens, visible_tokens);
  const int64_t blocks = (tokens + kTokens - 1) / kTokens;
  const int64_t warp_row = first_row + warp * 16;
  // What the first of some rows does not see is hidden from the others, too.
  const auto hidden_from = [&](int64_t row) {
    return args.window == 0 ? int64_t{0} : max(int64_t{0}, position + row + 1 - args.window);
  };
  const int64_t first_block = hidden_from(first_row) / kTokens;
  uint8_t* const shared = DynamicShared();

  const auto copy_block = [&](int64_t block) {
    uint8_t* const keys = shared + block % 2 * G::kBlockBytes;
    const int present = static_cast<int>(min(int64_t{kTokens}, tokens - block * kTokens));
    CopyVectors<kKeyDim, (kKeyDim - kSharedDim) / kChunkElements>(args.keys, block, present, kv_head, keys, 0);
    if constexpr (kSharedDim > 0) {
      CopyVectors<kKeyDim, kSharedDim / kChunkElements>(args.shared_keys, block, present, 0, keys,
                                                        (kKeyDim - kSharedDim) / kChunkElements);
    }
    CopyVectors<kValueDim, kValueDim / kChunkElements>(args.values, block, present, kv_head, keys + G::kKeyBytes, 0);
  };

  if (first_block < blocks) copy_block(first_block);
  CommitCopies();
  uint32_t q[kKeyDim / 16][4];
#pragma unroll
  for (int k = 0; k < kKeyDim / 16; ++k) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int64_t row = warp_row + g + r % 2 * 8;
      const uint16_t* from = args.queries + row * args.query_stride + head * kKeyDim + k * 16 + r / 2 * 8 + 2 * t;
      q[k][r] = row <= last_row ? *reinterpret_cast<const uint32_t*>(from) : 0u;
    }
  }
  RowState<kValueDim> state;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    state.max_score[i] = __uint_as_float(0xff800000u);
    state.sum[i] = 0;
  }
#pragma unroll
  for (int n = 0; n < kValueDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state.out[n][i] = 0;
  }

  const float scale = args.scale * kLog2E;
  for (int64_t block = first_block; block < blocks; ++block) {
    if (block + 1 < blocks) copy_block(block + 1);
    CommitCopies();
    WaitCopies<1>();
    __syncthreads();  // the block has arrived
    // A warp skips the block if all its rows precede it, or see only later ones.
    if (block * kTokens <= position + warp_row + 15 && (block + 1) * kTokens > hidden_from(warp_row)) {
      uint8_t* const keys = shared + block % 2 * G::kBlockBytes;
      int hidden[2], visible[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t seen = min(tokens, position + warp_row + g + 8 * i + 1) - block * kTokens;
        visible[i] = static_cast<int>(max(int64_t{0}, min(int64_t{kTokens}, seen)));
        const int64_t before = hidden_from(warp_row + g + 8 * i) - block * kTokens;
        hidden[i] = static_cast<int>(max(int64_t{0}, min(int64_t{kTokens}, before)));
      }
      float scores[kTokenFragments][4];
      uint32_t weights[kTokens / 16][4];
      Scores<kKeyDim>(q, keys, lane, scores);
      Softmax<kValueDim>(scores, scale, hidden, visible, t, state, weights);
      AddValues<kValueDim>(weights, keys + G::kKeyBytes, lane, state);
    }
    __syncthreads();  // all warps are done with the block: the next copy overwrites it
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float sum = state.sum[i];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    const int64_t row = warp_row + g + 8 * i;
    if (row > last_row) continue;
    if (args.partial != nullptr) {
      const bool sees_any = sum > 0;
      const int64_t at = row * args.heads + head;
      float* const partial = args.partial + at * kValueDim + 2 * t;
#pragma unroll
      for (int n = 0; n < kValueDim / 8; ++n) {
        partial[n * 8] = sees_any ? state.out[n][2 * i] / sum : 0.0f;
        partial[n * 8 + 1] = sees_any ? state.out[n][2 * i + 1] / sum : 0.0f;
      }
      if (t == 0) args.log_sum[at] = sees_any ? state.max_score[i] / kLog2E + logf(sum) : state.max_score[i];
      continue;
    }
    uint16_t* const out = args.out + row * args.out_stride + head * kValueDim + 2 * t;
    const float share = ShareOfTokens(args.sinks, head, state.max_score[i] / kLog2E + logf(sum));
#pragma unroll
    for (int n = 0; n < kValueDim / 8; ++n) {
      *reinterpret_cast<uint32_t*>(out + n * 8) =
          PackBf16(state.out[n][2 * i] / sum * share, state.out[n][2 * i + 1] / sum * share);
    }
  }
}

// One warp per row and head.
__global__ void __launch_bounds__(kThreads) MergeAttentionKernel(MergeAttentionArgs args) {
  BeginKernel();
  const int64_t at = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (at >= args.rows * args.heads) return;
  const bool merges = args.part != nullptr;
  const float a = args.total_log_sum[at], b = merges ? args.part_log_sum[at] : a;
  const float greatest = fmaxf(a, b);
  const bool any = greatest > __uint_as_float(0xff800000u);
  const float weight_a = any ? expf(a - greatest) : 0.0f, weight_b = any ? expf(b - greatest) : 0.0f;
  const float sum = weight_a + weight_b;
  const int64_t row = at / args.heads, head = at % args.heads;
  const float log_sum = merges && any ? greatest + logf(sum) : greatest;
  const float share = ShareOfTokens(args.sinks, head, log_sum);
  for (int64_t i = lane; i < args.value_dim; i += 32) {
    float& total = args.total[at * args.value_dim + i];
    if (merges) total = any ? fmaf(weight_b, args.part[at * args.value_dim + i], weight_a * total) / sum : 0.0f;
    if (args.out != nullptr) {
      args.out[row * args.out_stride + head * args.value_dim + i] =
          static_cast<uint16_t>(PackBf16(total * share, 0.0f));
    }
  }
  __syncwarp();  // all lanes have read the old log-sum
  if (merges && lane == 0) args.total_log_sum[at] = log_sum;
}

bool IsAligned(const void* p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }
bool IsAligned(const KvVectors& v) {
  return IsAligned(v.data, 16) && v.page_stride % 8 == 0 && v.token_stride % 8 == 0 && v.head_stride % 8 == 0;
}

template <int kKeyDim, int kSharedDim, int kValueDim>
LaunchResult LaunchGeometry(const PrefillAttentionArgs& args, Stream stream) {
  const dim3 grid(static_cast<unsigned>((args.rows + kQueries - 1) / kQueries), static_cast<unsigned>(args.heads));
  return Launch("prefill_attention", PrefillAttentionKernel<kKeyDim, kSharedDim, kValueDim>, grid, dim3(kThreads),
                Geometry<kKeyDim, kSharedDim, kValueDim>::kSharedBytes, stream, args);
}

}  // namespace

LaunchResult LaunchPrefillAttention(const PrefillAttentionArgs& args, Stream stream) {
  if (args.rows == 0) return {};
  if (args.kv_heads < 1 || args.heads % args.kv_heads != 0 || args.heads > 65535 || args.position < 0 ||
      args.out_stride % 2 != 0 || args.query_stride % 2 != 0 || !IsAligned(args.queries, 4) ||
      !IsAligned(args.out, 4) || !IsAligned(args.keys) || !IsAligned(args.shared_keys) || !IsAligned(args.values) ||
      args.value_dim != (args.key_dim == 64 ? 64 : 128) || args.window < 0 || args.first_token < 0 ||
      args.first_token % kKvBlock != 0 || args.tokens < 0 || (args.partial != nullptr && args.log_sum == nullptr) ||
      (args.partial == nullptr && args.first_token > args.position)) {
    return {kInvalidArgument};
  }
  const bool has_shared = args.shared_keys.data != nullptr;
  if (args.key_dim == 192 && has_shared) return LaunchGeometry<192, 64, 128>(args, stream);
  if (args.key_dim == 128 && !has_shared) return LaunchGeometry<128, 0, 128>(args, stream);
  if (args.key_dim == 64 && !has_shared) return LaunchGeometry<64, 0, 64>(args, stream);
  return {kInvalidArgument};
}

LaunchResult LaunchMergeAttention(const MergeAttentionArgs& args, Stream stream) {
  if (args.rows == 0) return {};
  const dim3 grid(static_cast<unsigned>((args.rows * args.heads + kWarps - 1) / kWarps));
  return Launch("merge_attention", MergeAttentionKernel, grid, dim3(kThreads), 0, stream, args);
}

}  // namespace moestro::cuda
