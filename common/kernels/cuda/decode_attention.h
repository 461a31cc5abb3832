// Attention of single rows over long caches: flash decoding.
//   absorbed MLA     A row's queries of all heads read the same cached vectors (latent, then rotated key). These are
//                    the keys of every head; their latent part is the value.
//   grouped queries  (GQA) The heads of a group share the keys and values of a kv head.
//
// A row's tokens are cut into splits of whole stages of 32 tokens, so many that the blocks of one row fill the GPU.
// Blocks compute the splits, and a second kernel merges them in order, by log-sum-exp in F32. The cuts depend on the
// row's position, the window, the heads and the number of multiprocessors. So a row's bits do not depend on the batch;
// two GPUs of different size differ in the last ones.
//
// Scores and sums are F32. Weights are rounded to BF16 before they multiply the values. Their sum is that of the
// rounded weights, as in common/model/attention/flash_attention.h.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

inline constexpr int kMaxSplits = 48;  // four blocks of 32 heads fill up to 192 multiprocessors
inline constexpr int64_t kDecodeMaxLatent = 512;
inline constexpr int64_t kDecodeMaxKeyDim = 576;

// Part of the heads' queries: row r and head h at data + r * row_stride + h * head_stride. Strides in elements, even;
// data aligned to 4 bytes.
struct QueryPart {
  const uint16_t* data = nullptr;  // BF16
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

struct DecodeAttentionArgs {
  int64_t rows = 0;
  int64_t heads = 0;
  // 0: MLA. Otherwise GQA, a divisor of `heads`: a token's cache entry is the keys of all kv heads, then their values.
  // Head h reads kv head h / (heads / kv_heads).
  int64_t kv_heads = 0;
  // Elements of a value. MLA: at most kDecodeMaxLatent, a multiple of 8; so is pages.kv_dim, at most kDecodeMaxKeyDim.
  // GQA: also the elements of a key; a multiple of 16, at most kDecodeMaxKeyDim / 2.
  int64_t latent = 0;
  float scale = 0;               // factor on scores
  QueryPart latent_queries;      // MLA: the first `latent` elements of a query
  QueryPart rotated_queries;     // the remaining elements; GQA: all
  int64_t splits = 0;            // at most, up to kMaxSplits; 0: DecodeSplits of this GPU
  int64_t window = 0;            // GQA: a row sees the last so many tokens; 0: all
  const float* sinks = nullptr;  // GQA: F32 [heads]: a scaled score that has a weight but no value; null: none
  // Token t of row r is in page pages.list[first_page[r] + t / 64]; the row sees tokens 0 .. positions[r], or the last
  // ones. Pages are aligned to 16 bytes. Tokens that no row sees are not read, but for 31 before a window.
  KvPagesView pages;
  const int32_t* positions = nullptr;   // [rows]
  const int32_t* first_page = nullptr;  // [rows]
  // Results of the splits: F32 [rows, kMaxSplits, heads, latent] and [rows, kMaxSplits, heads].
  float* partial = nullptr;
  float* log_sum = nullptr;
  uint16_t* out = nullptr;  // BF16 [rows, heads, latent], aligned to 8 bytes
};
// Splits of a row that has `blocks` blocks of heads: so that they keep as many multiprocessors busy as possible, each
// of which has room for one.
int64_t DecodeSplits(int64_t blocks, int64_t multiprocessors);

// kInvalidArgument for other dimensions than those above, or a wrong alignment. The launch does not depend on the
// positions.
LaunchResult LaunchDecodeAttention(const DecodeAttentionArgs& args, Stream stream);

}  // namespace moestro::cuda
