// Un-absorbed MLA, or grouped queries, of a pass, launch by launch. In this order: ProjectDown; then, some heads at a
// time, ProjectQueries, Attend for every part of the tokens, in any order, and FinishHeads if no part was the last;
// then AddOutput.
#pragma once

#include "services/prefill/stream/cuda/pass.h"

namespace moestro {

// The latents, or keys and values, of the pass's rows, and the input of q_b.
absl::Status ProjectDown(const CudaPass& pass, const AttentionWeights& w, cuda::Stream stream);

// Rotated queries of the heads, of all rows.
absl::Status ProjectQueries(const CudaPass& pass, const AttentionWeights& w, IndexRange heads, cuda::Stream stream);

// Consecutive tokens.
struct KvPart {
  const uint16_t* latents = nullptr;  // BF16 [tokens, kv_dim]
  int64_t first_token = 0;            // begins a KV block
  int64_t tokens = 0;
  bool is_first = false;
  bool is_last = false;  // then all rows see some of it
};
absl::Status Attend(const CudaPass& pass, const AttentionWeights& w, IndexRange heads, const KvPart& part,
                    cuda::Stream stream);

// attended = what the parts give together.
absl::Status FinishHeads(const CudaPass& pass, IndexRange heads, cuda::Stream stream);

// residual += o(attended)
absl::Status AddOutput(const CudaPass& pass, const AttentionWeights& w, cuda::Stream stream);

}  // namespace moestro
