// The geometry shared by attention kernels. Plain data only: per-ISA sources include this header.
#pragma once

#include <cstdint>

namespace moestro {

// Tokens of a KV block. Every attention implementation is an online softmax in steps of one or a few blocks. So this is
// part of the numerics: another number gives other bits.
inline constexpr int64_t kAttentionBlock = 64;

// A KV block for some contiguous KV heads, in rows or packed.
// Rows: of the i-th head, token t's key is key_dim BF16 elements at keys + t * key_stride + i * key_dim. Its value is
// value_dim elements at values + t * value_stride + i * value_dim.
// Packed: at packed + i * head_bytes are the i-th head's keys, the packed BF16 matrix [kAttentionBlock rows, key_dim];
// packed_values bytes further its values, [value_dim rows, kAttentionBlock]. Keys of absent tokens are anything, their
// values are finite.
struct KvBlock {
  const uint16_t* keys = nullptr;
  int64_t key_stride = 0;
  const uint16_t* values = nullptr;
  int64_t value_stride = 0;
  // A hint: memory of the next block, to prefetch meanwhile; null if not needed. Packed: that of the same heads.
  const uint8_t* next = nullptr;
  int64_t next_bytes = 0;
  const uint8_t* packed = nullptr;  // null: rows; otherwise aligned to 64 bytes
  int64_t packed_values = 0;        // a multiple of 64, as is the next
  int64_t head_bytes = 0;
};

// A query's state between blocks: starts with -inf and 0.
struct SoftmaxState {
  float max_score;
  float sum;
};

// One token's queries, contiguous for each KV head, and their sums so far.
struct TokenQueries {
  int64_t first_token = 0;  // that they see, less than the number of tokens
  int64_t kv_heads = 0;
  int64_t group = 0;  // queries per KV head
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float scale = 0;                    // factor on scores
  const uint16_t* queries = nullptr;  // BF16 [kv_heads][group, key_dim]
  int64_t query_stride = 0;           // elements between the queries of consecutive KV heads
  SoftmaxState* states = nullptr;     // [kv_heads, group]
  float* sums = nullptr;              // [kv_heads, group, value_dim]
};
inline constexpr int64_t kMaxTokenGroup = 16;
inline constexpr int64_t kTokenDims = 32;  // key_dim and value_dim are multiples of it

}  // namespace moestro
