// The geometry that attention kernels share. Plain data only: per-ISA sources include this header.
#pragma once

#include <cstdint>

namespace moestro {

// Tokens of a KV block. Attention is an online softmax in steps of one or a few blocks, whoever computes it, so this is
// part of the numerics: another number gives other bits.
inline constexpr int64_t kAttentionBlock = 64;

// A KV block's rows, for some KV heads that lie side by side in them: token t's key for the i-th is key_dim BF16
// numbers at keys + t * key_stride + i * key_dim, its value value_dim numbers at values + t * value_stride + i *
// value_dim.
struct KvBlock {
  const uint16_t* keys = nullptr;
  int64_t key_stride = 0;
  const uint16_t* values = nullptr;
  int64_t value_stride = 0;
  // A hint: memory in which the next block's rows lie, to be fetched meanwhile; null if they need no fetching.
  const uint8_t* next = nullptr;
  int64_t next_bytes = 0;
};

// What a query carries from block to block: start with -inf and 0.
struct SoftmaxState {
  float max_score;
  float sum;
};

// A token's queries, those that share a KV head side by side, and what they have summed so far.
struct TokenQueries {
  int64_t kv_heads = 0;
  int64_t group = 0;  // queries of each KV head
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float scale = 0;                    // of scores
  const uint16_t* queries = nullptr;  // BF16 [kv_heads][group, key_dim]
  int64_t query_stride = 0;           // numbers from one KV head's queries to the next one's
  SoftmaxState* states = nullptr;     // [kv_heads, group]
  float* sums = nullptr;              // [kv_heads, group, value_dim]
};
inline constexpr int64_t kMaxTokenGroup = 16;
inline constexpr int64_t kTokenDims = 32;  // key_dim and value_dim are multiples of it

}  // namespace moestro
