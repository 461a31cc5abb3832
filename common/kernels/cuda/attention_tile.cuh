// What both kernels of a prompt's attention share. attention.cu multiplies by warps (mma.sync), wgmma_attention.cu by
// groups of four warps (wgmma). A block computes 128 queries of one head, 16 a warp. Keys and values pass through
// shared memory, 64 tokens at a time. Queries stay in registers as operand A of S = Q K^T. Accumulators of S become
// weights, operand A of O += P V.
//
// With g = lane / 4 and t = lane % 4, a lane has rows g and g + 8 of its warp's 16, and of each 8 columns those at 2t
// and 2t + 1: the accumulators of both kinds of products.
#pragma once

#include <cuda_runtime.h>

#include "common/kernels/cuda/attention.h"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/reduce.cuh"
#include "common/kernels/cuda/silu.cuh"
#include "common/kernels/cuda/wgmma.cuh"

namespace moestro::cuda {

constexpr int kAttentionWarps = 8;
constexpr int kAttentionThreads = 32 * kAttentionWarps;
constexpr int kQueries = 16 * kAttentionWarps;
constexpr int kTokens = static_cast<int>(kKvBlock);
constexpr int kTokenFragments = kTokens / 8;
constexpr int kChunkElements = 8;  // BF16 elements in 16 bytes
constexpr float kLog2E = 1.44269504088896340736f;

// Vectors of a block's tokens in shared memory: parts of 64 elements (kSwizzledRowBytes), each with a row a token.
constexpr int kPartElements = kSwizzledRowBytes / 2;
constexpr int kPartChunks = kPartElements / kChunkElements;
constexpr int kPartBytes = kTokens * kSwizzledRowBytes;

template <int kTheKeyDim, int kTheSharedDim, int kTheValueDim>
struct AttentionGeometry {
  static constexpr int kKeyDim = kTheKeyDim;        // of which ..
  static constexpr int kSharedDim = kTheSharedDim;  // .. all heads share the last
  static constexpr int kValueDim = kTheValueDim;
  static constexpr int kKeyBytes = kTokens * kKeyDim * 2;
  static constexpr int kValueBytes = kTokens * kValueDim * 2;
  static constexpr int kSharedBytes = 2 * (kKeyBytes + kValueBytes);
  static_assert(kSharedBytes <= kMaxSharedBytes);
  static_assert(kKeyDim % kPartElements == 0 && kSharedDim % 8 == 0 && kValueDim % kPartElements == 0);
};

// Address of 16-byte chunk c of a token's vector.
__device__ __forceinline__ uint8_t* Chunk(uint8_t* vectors, int token, int c) {
  return vectors + c / kPartChunks * kPartBytes + token * kSwizzledRowBytes +
         SwizzledPlace(token, c % kPartChunks) * 16;
}

// Copies the chunks of the block's tokens to chunks [first_chunk, ..) in shared memory. Tokens from `tokens` on become
// zeros: their weights are 0, and 0 times their values must be 0.
template <int kChunks>
__device__ __forceinline__ void CopyVectors(const KvVectors& vectors, int64_t block, int tokens, int64_t kv_head,
                                            uint8_t* shared, int first_chunk) {
  constexpr int kStep = kAttentionThreads / kChunks;  // tokens that all threads copy together, whose chunks lie alike
  static_assert(kAttentionThreads % kChunks == 0 && kStep % 8 == 0 && kTokens % kStep == 0);
  const int64_t page = vectors.pages == nullptr ? block : vectors.pages[block];
  const int first = static_cast<int>(threadIdx.x) / kChunks, c = static_cast<int>(threadIdx.x) % kChunks;
  const uint16_t* const vector = vectors.data + page * vectors.page_stride + kv_head * vectors.head_stride;
  const uint16_t* const from = vector + first * vectors.token_stride + c * kChunkElements;
  uint8_t* const to = Chunk(shared, first, first_chunk + c);
#pragma unroll
  for (int token = 0; token < kTokens; token += kStep) {
    const bool exists = first + token < tokens;
    CopyAsync16(to + token * kSwizzledRowBytes, exists ? from + token * vectors.token_stride : vector, exists ? 16 : 0);
  }
}

// The block's rows, and the tokens that they see. Positions count from the first token of the vectors.
struct AttentionTile {
  int64_t head, kv_head;
  int64_t first_row, last_row;
  int64_t warp_row;  // the warp's first
  int64_t position;  // of row 0
  int64_t tokens;
  int64_t first_block, blocks;  // of tokens; the end of the last one

  __device__ __forceinline__ explicit AttentionTile(const PrefillAttentionArgs& args) {
    head = blockIdx.y;
    kv_head = head / (args.heads / args.kv_heads);
    // The last tiles see the most tokens, so they begin first.
    first_row = int64_t{gridDim.x - 1 - blockIdx.x} * kQueries;
    last_row = min(args.rows, first_row + kQueries) - 1;
    warp_row = first_row + static_cast<int>(threadIdx.x) / 32 * 16;
    position = args.position - args.first_token;
    const int64_t visible_tokens = max(int64_t{0}, position + last_row + 1);
    tokens = args.tokens == 0 ? visible_tokens : min(args.tokens, visible_tokens);
    blocks = (tokens + kTokens - 1) / kTokens;
    first_block = FirstSeen(args.window, first_row) / kTokens;
  }
  // What the first of some rows does not see is hidden from the others, too.
  __device__ __forceinline__ int64_t FirstSeen(int64_t window, int64_t row) const {
    return window == 0 ? int64_t{0} : max(int64_t{0}, position + row + 1 - window);
  }
  // Scores of a block become -inf where the lane's rows do not see the token.
  __device__ __forceinline__ void Hide(int64_t window, int64_t block, int g, int t,
                                       float (&scores)[kTokenFragments][4]) const {
    int hidden[2], visible[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t row = warp_row + g + 8 * i;
      const int64_t seen = min(tokens, position + row + 1) - block * kTokens;
      visible[i] = static_cast<int>(max(int64_t{0}, min(int64_t{kTokens}, seen)));
      const int64_t before = FirstSeen(window, row) - block * kTokens;
      hidden[i] = static_cast<int>(max(int64_t{0}, min(int64_t{kTokens}, before)));
    }
#pragma unroll
    for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = n * 8 + 2 * t + i % 2;
        scores[n][i] = token >= hidden[i / 2] && token < visible[i / 2] ? scores[n][i] : __uint_as_float(0xff800000u);
      }
    }
  }
};

template <typename G>
__device__ __forceinline__ void CopyKeys(const PrefillAttentionArgs& args, const AttentionTile& tile, int64_t block,
                                         uint8_t* keys) {
  constexpr int kOwnChunks = (G::kKeyDim - G::kSharedDim) / kChunkElements;
  const int present = static_cast<int>(min(int64_t{kTokens}, tile.tokens - block * kTokens));
  CopyVectors<kOwnChunks>(args.keys, block, present, tile.kv_head, keys, 0);
  if constexpr (G::kSharedDim > 0) {
    CopyVectors<G::kSharedDim / kChunkElements>(args.shared_keys, block, present, 0, keys, kOwnChunks);
  }
}
template <typename G>
__device__ __forceinline__ void CopyValues(const PrefillAttentionArgs& args, const AttentionTile& tile, int64_t block,
                                           uint8_t* values) {
  const int present = static_cast<int>(min(int64_t{kTokens}, tile.tokens - block * kTokens));
  CopyVectors<G::kValueDim / kChunkElements>(args.values, block, present, tile.kv_head, values, 0);
}

// The lane's part of its warp's queries; zeros for rows that do not exist.
template <int kKeyDim>
__device__ __forceinline__ void LoadQueries(const PrefillAttentionArgs& args, const AttentionTile& tile, int g, int t,
                                            uint32_t (&q)[kKeyDim / 16][4]) {
#pragma unroll
  for (int k = 0; k < kKeyDim / 16; ++k) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int64_t row = tile.warp_row + g + r % 2 * 8;
      const uint16_t* from = args.queries + row * args.query_stride + tile.head * kKeyDim + k * 16 + r / 2 * 8 + 2 * t;
      q[k][r] = row <= tile.last_row ? *reinterpret_cast<const uint32_t*>(from) : 0u;
    }
  }
}

// A lane's state between blocks, for its two rows.
template <int kValueDim>
struct RowState {
  float max_score[2];  // scores times log2(e)
  float sum[2];        // this lane's weights only
  float out[kValueDim / 8][4];

  __device__ __forceinline__ RowState() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      max_score[i] = __uint_as_float(0xff800000u);
      sum[i] = 0;
    }
#pragma unroll
    for (int n = 0; n < kValueDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] = 0;
    }
  }
};

// One step of the online softmax: scores times `scale`, which is positive, become exponentials. What `state` has so
// far, `out` too, must be multiplied by `rescale`; here the sums are.
template <int kValueDim>
__device__ __forceinline__ void Softmax(float (&scores)[kTokenFragments][4], float scale, RowState<kValueDim>& state,
                                        float (&rescale)[2]) {
  float base[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float greatest = __uint_as_float(0xff800000u);
#pragma unroll
    for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) greatest = fmaxf(greatest, scores[n][2 * i + e]);
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
      const float low = Exp2(fmaf(scores[n][2 * i], scale, -base[i]));
      const float high = Exp2(fmaf(scores[n][2 * i + 1], scale, -base[i]));
      scores[n][2 * i] = low;
      scores[n][2 * i + 1] = high;
    }
  }
}

// Exponentials become weights, operand A of O += P V. Not part of Softmax: before, products may still read the weights
// of the block before, and ptxas would let them wait for each other.
template <int kValueDim>
__device__ __forceinline__ void RoundWeights(const float (&scores)[kTokenFragments][4], RowState<kValueDim>& state,
                                             uint32_t (&weights)[kTokens / 16][4]) {
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t pair = PackBf16(scores[n][2 * i], scores[n][2 * i + 1]);
      state.sum[i] += __uint_as_float(pair << 16) + __uint_as_float(pair & 0xffff0000u);
      weights[n / 2][n % 2 * 2 + i] = pair;
    }
  }
}

template <int kValueDim>
__device__ __forceinline__ void Rescale(const float (&rescale)[2], RowState<kValueDim>& state) {
#pragma unroll
  for (int n = 0; n < kValueDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state.out[n][i] *= rescale[i / 2];
  }
}

// Writes the lane's rows, of all tokens or of a part.
template <int kValueDim>
__device__ __forceinline__ void StoreRows(const PrefillAttentionArgs& args, const AttentionTile& tile, int g, int t,
                                          const RowState<kValueDim>& state) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float sum = state.sum[i];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    const int64_t row = tile.warp_row + g + 8 * i;
    if (row > tile.last_row) continue;
    if (args.partial != nullptr) {
      const bool sees_any = sum > 0;
      const int64_t at = row * args.heads + tile.head;
      float* const partial = args.partial + at * kValueDim + 2 * t;
#pragma unroll
      for (int n = 0; n < kValueDim / 8; ++n) {
        partial[n * 8] = sees_any ? state.out[n][2 * i] / sum : 0.0f;
        partial[n * 8 + 1] = sees_any ? state.out[n][2 * i + 1] / sum : 0.0f;
      }
      if (t == 0) args.log_sum[at] = sees_any ? state.max_score[i] / kLog2E + logf(sum) : state.max_score[i];
      continue;
    }
    uint16_t* const out = args.out + row * args.out_stride + tile.head * kValueDim + 2 * t;
    const float share = ShareOfTokens(args.sinks, tile.head, state.max_score[i] / kLog2E + logf(sum));
#pragma unroll
    for (int n = 0; n < kValueDim / 8; ++n) {
      *reinterpret_cast<uint32_t*>(out + n * 8) =
          PackBf16(state.out[n][2 * i] / sum * share, state.out[n][2 * i + 1] / sum * share);
    }
  }
}

// Calls launch(geometry, grid) for the dimensions of the arguments' keys, which have a kernel.
template <typename LaunchFunction>
LaunchResult LaunchForKeys(const PrefillAttentionArgs& args, const LaunchFunction& launch) {
  const dim3 grid(static_cast<unsigned>((args.rows + kQueries - 1) / kQueries), static_cast<unsigned>(args.heads));
  if (args.key_dim == 192) return launch(AttentionGeometry<192, 64, 128>(), grid);
  if (args.key_dim == 128) return launch(AttentionGeometry<128, 0, 128>(), grid);
  return launch(AttentionGeometry<64, 0, 64>(), grid);
}

}  // namespace moestro::cuda
