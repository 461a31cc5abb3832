// Causal attention of one sequence's prompt over its keys and values: flash attention over KV blocks of 64 tokens. For
// un-absorbed MLA (keys of 192 elements, the last 64 shared by all heads) and for GQA. Long prompts need the
// un-absorbed form: 320 multiplications per query, head and cached token; the absorbed form takes 1088.
//
// Scores and sums are F32. Weights are rounded to BF16 before they multiply the values. Their sum is that of the
// rounded weights, as in common/model/attention/flash_attention.h.
//
// MLA expands latents to keys and values first (a linear with kv_b, LinearOutput::kBf16): 64 KB per token for 128
// heads. If that is too much, process some heads at a time: pass kv_b's rows, queries and out starting at the first of
// these heads, with the same strides.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

inline constexpr int64_t kKvBlock = 64;  // tokens; also the tokens of a KV pool's page

// BF16 vectors of tokens and KV heads, on the device: token t of head h is at
//   data + (pages ? pages[t / 64] : t / 64) * page_stride + t % 64 * token_stride + h * head_stride
// in elements. All strides are multiples of 8, data is aligned to 16 bytes. Tokens past the last one are not read.
struct KvVectors {
  const uint16_t* data = nullptr;
  const uint32_t* pages = nullptr;  // null: contiguous pages
  int64_t page_stride = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
};

struct PrefillAttentionArgs {
  int64_t heads = 0;
  int64_t kv_heads = 0;          // divides heads; head h reads kv_head h / (heads / kv_heads)
  int64_t key_dim = 0;           // 192 (of which shared_keys has 64), 128 or 64 (no shared keys)
  int64_t value_dim = 0;         // 128, or 64 with keys of 64
  float scale = 0;               // factor on scores
  KvVectors keys;                // the first key_dim, or key_dim - 64, elements of a key
  KvVectors shared_keys;         // its last 64, the same for all heads: MLA's rotated key; data null: none
  KvVectors values;              // value_dim elements
  int64_t position = 0;          // position of the first row; row r sees tokens up to position + r
  int64_t window = 0;            // .. the last so many of them; 0: all. Blocks that no row of a tile sees are not read
  const float* sinks = nullptr;  // F32 [heads]: a scaled score without a value, in `out` only; null: none
  int64_t rows = 0;
  const uint16_t* queries = nullptr;  // BF16 [rows, query_stride], with [heads, key_dim]; aligned to 4 bytes
  int64_t query_stride = 0;           // even
  // The tokens of the vectors, counted from the sequence's start: [first_token, first_token + tokens), or all up to
  // position + rows if tokens is 0. first_token is a multiple of kKvBlock; token t of the sequence is token t -
  // first_token of the vectors.
  int64_t first_token = 0;
  int64_t tokens = 0;
  // Either the result, for which every row must see a token ..
  uint16_t* out = nullptr;  // BF16 [rows, out_stride], of which [heads, value_dim] is written; aligned to 4 bytes
  int64_t out_stride = 0;   // even
  // .. or, if `partial` is not null, the input of MergeAttention. F32 [rows, heads, value_dim]: the attention over
  // these tokens alone. F32 [rows, heads]: the logarithm of the sum of exp(score) over them. 0 and -inf for a row that
  // sees none of them.
  float* partial = nullptr;
  float* log_sum = nullptr;
};
// kInvalidArgument for other dimensions than those above, or a wrong alignment.
LaunchResult LaunchPrefillAttention(const PrefillAttentionArgs& args, Stream stream);

// total = the attention over the tokens of both total and part, weighted by their log-sums; updates total_log_sum too.
// All F32 [rows, heads, value_dim] and [rows, heads]. Parts may be of any disjoint tokens; the merge order affects the
// last bits. If out is not null, it becomes bf16(total), [rows, out_stride], with the sinks. With part null, only that
// happens.
struct MergeAttentionArgs {
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t value_dim = 0;
  float* total = nullptr;
  float* total_log_sum = nullptr;
  const float* part = nullptr;
  const float* part_log_sum = nullptr;
  const float* sinks = nullptr;  // F32 [heads], as above
  uint16_t* out = nullptr;
  int64_t out_stride = 0;
};
LaunchResult LaunchMergeAttention(const MergeAttentionArgs& args, Stream stream);

}  // namespace moestro::cuda
