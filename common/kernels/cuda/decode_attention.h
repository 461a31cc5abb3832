// Attention of single rows over long caches: flash decoding.
//   absorbed MLA     A row's queries of all heads share what they read, the cached vectors (latent, then rotated key),
//                    which are keys of every head, and their latent part its values.
//   grouped queries  (GQA) The heads of a group share the keys and values of a kv head.
//
// A row's tokens are cut into at most kMaxSplits splits, which blocks take apart and a second kernel merges in their
// order, by log-sum-exp in F32. Where they are cut depends on the row's own position alone, so a row's bits do not
// depend on the batch.
//
// Scores and sums are F32. Weights are rounded to BF16 before they multiply the values, and their sum is that of the
// rounded ones, as in common/model/attention/flash_attention.h.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

inline constexpr int kMaxSplits = 32;
inline constexpr int64_t kDecodeMaxLatent = 512;
inline constexpr int64_t kDecodeMaxKeyDim = 576;

// Of a head's query: row r and head h at data + r * row_stride + h * head_stride. Strides in numbers, even; data
// aligned to 4 bytes.
struct QueryPart {
  const uint16_t* data = nullptr;  // BF16
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

struct DecodeAttentionArgs {
  int64_t rows = 0;
  int64_t heads = 0;
  // 0: MLA. Otherwise a divisor of `heads`, and a token's cached numbers are the keys of all kv heads, then their
  // values; head h reads those of kv head h / (heads / kv_heads).
  int64_t kv_heads = 0;
  // Numbers of a value. MLA: at most kDecodeMaxLatent, a multiple of 8, as pages.kv_dim, at most kDecodeMaxKeyDim. GQA:
  // also those of a key; a multiple of 16, at most kDecodeMaxKeyDim / 2.
  int64_t latent = 0;
  float scale = 0;            // of scores
  QueryPart latent_queries;   // MLA: the first `latent` numbers of a query
  QueryPart rotated_queries;  // the other ones; GQA: all
  // Token t of row r lies in page pages.list[first_page[r] + t / 64]; the row sees tokens 0 .. positions[r]. Pages are
  // aligned to 16 bytes; tokens that no row sees are not read.
  KvPagesView pages;
  const int32_t* positions = nullptr;   // [rows]
  const int32_t* first_page = nullptr;  // [rows]
  // What the splits give: F32 [rows, kMaxSplits, heads, latent] and [rows, kMaxSplits, heads].
  float* partial = nullptr;
  float* log_sum = nullptr;
  uint16_t* out = nullptr;  // BF16 [rows, heads, latent], aligned to 8 bytes
};
// kInvalidArgument if the dimensions are none of those above, or an alignment is not kept. The launch is the same
// whatever the positions are.
LaunchResult LaunchDecodeAttention(const DecodeAttentionArgs& args, Stream stream);

}  // namespace moestro::cuda
