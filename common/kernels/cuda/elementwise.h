// The operations between products: norms, activation, rotary embedding, embedding rows, KV write. Semantics are those
// of common/kernels/cpu/kernels.h and common/model. All pointers are device pointers, row-major, with the alignment of
// their types. Without rows nothing is launched.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

// residual[r] = table[tokens[r]] in F32. table: BF16 or F32 [.., hidden]. tokens: [rows], each a row of the table;
// null: row r. The table may be registered host memory (Device::KernelsRead).
LaunchResult LaunchEmbed(const uint16_t* table, const int32_t* tokens, int64_t rows, int64_t hidden, float* residual,
                         Stream stream);
LaunchResult LaunchEmbed(const float* table, const int32_t* tokens, int64_t rows, int64_t hidden, float* residual,
                         Stream stream);

struct RmsNormArgs {
  const float* x = nullptr;  // [rows, x_stride], of which the first n elements are read
  int64_t x_stride = 0;
  const float* weight = nullptr;  // [n]
  int64_t rows = 0;
  int64_t n = 0;
  float eps = 0;
  float* out = nullptr;          // [rows, n] or null; may be x if x_stride is n
  uint16_t* out_bf16 = nullptr;  // [rows, out_bf16_stride] or null
  int64_t out_bf16_stride = 0;
  bool subtract_mean = false;  // x - mean(x) takes the place of x
  // [rows, out_int8_stride] or null: out_bf16 coded, as LaunchEncodeInt8 has it, whose stride and alignment it needs.
  uint16_t* out_int8 = nullptr;
  int64_t out_int8_stride = 0;
};
// out = x / sqrt(mean(x^2) + eps) * weight. A row's bits depend only on that row and n. kInvalidArgument if a
// requirement is violated.
LaunchResult LaunchRmsNorm(const RmsNormArgs& args, Stream stream);

// out[r, i] = bf16(silu(gate[r, i]) * up[r, i]) for i in [0, n); gate and up: [rows, stride], out: [rows, out_stride].
LaunchResult LaunchSiluMul(const float* gate, const float* up, int64_t rows, int64_t n, int64_t stride, uint16_t* out,
                           int64_t out_stride, Stream stream);

// sum[i] += x[i] for i in [0, n).
LaunchResult LaunchAdd(const float* x, int64_t n, float* sum, Stream stream);

// The end of a layer with experts in a step of decode.
struct AddExpertsArgs {
  const float* routed = nullptr;  // [rows, hidden]; may be registered host memory (Device::KernelsRead)
  const float* shared = nullptr;  // [rows, hidden]; null: none
  const float* gates = nullptr;   // [rows], logits of the gates of `shared`; null: none
  int64_t rows = 0;
  int64_t hidden = 0;
  float* residual = nullptr;  // [rows, hidden]
};
// residual += routed + shared, with two roundings; with gates, one fused multiply-add makes the sum of both. Then the
// norm of these rows, whose x is the residual, unless its weight is null. Its bits are those of LaunchRmsNorm.
// kInvalidArgument unless hidden is a multiple of 4, and the addresses of routed, shared and residual of 16.
LaunchResult LaunchAddExperts(const AddExpertsArgs& args, const RmsNormArgs& norm, Stream stream);

// x[r, i] += bias[i] for i in [0, n). x: [rows, n].
LaunchResult LaunchAddBias(const float* bias, int64_t rows, int64_t n, float* x, Stream stream);

// sum[r, i] += sigmoid(gates[r]) * x[r, i] for i in [0, n). x and sum: [rows, n], gates: [rows].
LaunchResult LaunchAddGated(const float* x, const float* gates, int64_t rows, int64_t n, float* sum, Stream stream);

// x[i] is clamped to [-limit, limit], for i in [0, n). A NaN stays.
LaunchResult LaunchClamp(float limit, int64_t n, float* x, Stream stream);

// out[i] = parts[0][i] + parts[1][i] + ..., in this order, for i in [0, n); 0 without parts. One part may be out
// itself.
inline constexpr int64_t kMaxParts = 8;
struct SumPartsArgs {
  const float* parts[kMaxParts] = {};
  int64_t count = 0;
  int64_t n = 0;
  float* out = nullptr;
};
// kInvalidArgument for more than kMaxParts parts.
LaunchResult LaunchSumParts(const SumPartsArgs& args, Stream stream);

// Copies bytes between disjoint ranges. kInvalidArgument unless addresses and bytes are multiples of 4.
LaunchResult LaunchCopy(const void* from, int64_t bytes, void* to, Stream stream);

// How a rotation pairs the `dims` rotated elements of a head: (2i, 2i + 1), as in DeepSeek's checkpoints, or (i, i +
// dims / 2), as in Qwen's.
enum class RopePairs { kAdjacent, kHalves };

// The rotations at the rows' positions. The host computes them in double (common/model/attention/rope.h); they include
// YaRN and all other scaling.
struct RopeAngles {
  const float* cosine = nullptr;  // [rows, dims / 2]
  const float* sine = nullptr;    // [rows, dims / 2]
  int64_t dims = 0;               // rotated elements of a head, even
  RopePairs pairs = RopePairs::kAdjacent;
};

// out[r, h] = bf16 of x[r, h], with elements [first, first + angles.dims) rotated. x: F32 [rows, heads, head_dim].
LaunchResult LaunchRotateHeads(const float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t first,
                               const RopeAngles& angles, uint16_t* out, Stream stream);

// One layer of one sequence's pages in the KV pool (common/kv/format.h), for the device.
struct KvPagesView {
  uint8_t* pages = nullptr;        // page 0 of the pool
  const uint32_t* list = nullptr;  // [..] the sequence's pages in order; null: contiguous pages
  int64_t page_bytes = 0;          // a whole page, all layers
  int64_t layer_offset = 0;        // offset of the layer in a page
  int64_t page_tokens = 64;
  int64_t kv_dim = 0;  // BF16 elements per token
};

// MLA: a row's cache entry is its normalised latent, then its rotated key, which is not normalised.
struct StoreLatentArgs {
  const float* kv_a = nullptr;    // [rows, latent + angles.dims]
  const float* weight = nullptr;  // [latent], the norm's weight
  int64_t rows = 0;
  int64_t latent = 0;
  float eps = 0;
  RopeAngles angles;
  int64_t position = 0;  // position of the first row; the others follow
  KvPagesView pages;     // kv_dim = latent + angles.dims
  // Rows of several sequences: row r has positions[r] in the sequence whose pages begin at pages.list[first_page[r]].
  // Both [rows], or both null: the rows have consecutive positions from `position` on.
  const int32_t* positions = nullptr;
  const int32_t* first_page = nullptr;
  uint16_t* copy = nullptr;  // [rows, kv_dim]: a contiguous copy of the entries; null: none
};
LaunchResult LaunchStoreLatent(const StoreLatentArgs& args, Stream stream);
// Both in one launch, with the same bits. The norm has nothing to do with what is stored.
LaunchResult LaunchStoreLatentAndNorm(const StoreLatentArgs& args, const RmsNormArgs& norm, Stream stream);

// Grouped queries: a row's cache entry is the keys of all KV heads, rotated, then their values.
struct StoreKeysValuesArgs {
  const float* keys = nullptr;    // [rows, kv_heads, head_dim]
  const float* values = nullptr;  // [rows, kv_heads, head_dim]
  int64_t rows = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  RopeAngles angles;     // for the first angles.dims elements of a key
  int64_t position = 0;  // position of the first row; the others follow
  KvPagesView pages;     // kv_dim = 2 * kv_heads * head_dim
  // As in StoreLatentArgs.
  const int32_t* positions = nullptr;
  const int32_t* first_page = nullptr;
  uint16_t* copy = nullptr;
};
LaunchResult LaunchStoreKeysValues(const StoreKeysValuesArgs& args, Stream stream);

// Blocks of 64 tokens of grouped queries, one a layer, from the KV pool's packed form (common/kv/kv_block.h) to rows:
// BF16 [layers, 64, kv_dim], a token's keys of all KV heads, then their values. Copies numbers, of absent tokens too.
struct UnpackBlocksArgs {
  const uint16_t* packed = nullptr;  // [layers] blocks; aligned to 4 bytes, as `rows`
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // a multiple of 4
  uint16_t* rows = nullptr;
};
LaunchResult LaunchUnpackBlocks(const UnpackBlocksArgs& args, Stream stream);

}  // namespace moestro::cuda
