// Attention of some rows, launch by launch: MLA or grouped queries.
//
// Of a prompt, un-absorbed, in this order: ProjectDown; then, some heads at a time, ProjectQueries, Attend for every
// part of the tokens, in any order, and FinishHeads if no part was the last; then AddOutput. Of a step of decode:
// AddDecodeAttention.
#pragma once

#include "common/engine/cuda/rows.h"

namespace moestro::engine {

// The rows' entries of the cache, and the input of q_b.
absl::Status ProjectDown(const CudaRows& rows, const model::AttentionWeights& w, cuda::Stream stream);

// Rotated queries of the heads, of all rows.
absl::Status ProjectQueries(const CudaRows& rows, const model::AttentionWeights& w, IndexRange heads,
                            cuda::Stream stream);

// Queries as they are projected, without biases, norms and rotation, F32 [rows, heads * qk_head_dim].
absl::Status ProjectPlainQueries(const CudaRows& rows, const model::AttentionWeights& w, float* queries,
                                 cuda::Stream stream);

// residual += o(attn_out), with its bias. attn_out: BF16 [rows, CudaStride(heads * v_head_dim)], which codes may
// overwrite.
absl::Status AddOutput(const CudaRows& rows, const model::AttentionWeights& w, uint16_t* attn_out, cuda::Stream stream);

// Consecutive tokens.
struct KvPart {
  const uint16_t* latents = nullptr;  // BF16 [tokens, kv_dim]
  int64_t first_token = 0;            // begins a KV block
  int64_t tokens = 0;
  bool is_first = false;
  bool is_last = false;  // then all rows see some of it
};
absl::Status Attend(const CudaRows& rows, const model::AttentionWeights& w, IndexRange heads, const KvPart& part,
                    cuda::Stream stream);

// attn_out = what the parts give together.
absl::Status FinishHeads(const CudaRows& rows, const model::AttentionWeights& w, IndexRange heads, cuda::Stream stream);

// residual += attention(norm(residual)), absorbed if it is MLA.
absl::Status AddDecodeAttention(const CudaRows& rows, const model::AttentionWeights& w, cuda::Stream stream);

}  // namespace moestro::engine
