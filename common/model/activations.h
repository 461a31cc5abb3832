// Every buffer of a forward pass, allocated once for the largest batch. R = max_rows, H = hidden_size, A = num_heads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/base/math.h"
#include "common/kv/format.h"
#include "common/model/buffer.h"
#include "common/model/expert_plan.h"
#include "common/model/router.h"
#include "common/tensor/packed_matrix.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Rows whose absorbed queries and attended latents are held at once (at the published geometry 280 KB a row).
inline constexpr int64_t kAbsorbedRows = 32;

// Numbers from one row of a BF16 linear input to the next: an odd number of cache lines. Rows a multiple of many lines
// apart (16384 numbers of attention output are 512 lines) would share so few sets of the caches that they evict each
// other.
constexpr int64_t RowStride(int64_t width) {
  constexpr int64_t kLine = 32;
  return (CeilDiv(width, kLine) / 2 * 2 + 1) * kLine;
}

// Of what attention gives.
inline int64_t AttendedStride(const ModelSpec& spec) { return RowStride(spec.num_heads * spec.v_head_dim); }

// Numbers of a head's query in the absorbed form, if the model has one.
inline int64_t AbsorbedQueryDim(const ModelSpec& spec) { return spec.has_grouped_queries() ? 0 : spec.kv_dim(); }

// Row groups of a linear that one task computes at most (TaskGroups in linear.h).
inline constexpr int64_t kMaxTaskGroups = 4;

// What one worker needs for itself.
struct WorkerScratch {
  WorkerScratch(const ModelSpec& spec, int64_t max_rows)
      : group_a(max_rows * kMaxTaskGroups * kRowGroup),
        group_b(max_rows * kMaxTaskGroups * kRowGroup),
        head(std::max(kAbsorbedRows * std::max(spec.kv_lora_rank, spec.v_head_dim),
                      kPageTokens * (spec.qk_nope_head_dim + spec.v_head_dim))),
        head_narrow(kAbsorbedRows * spec.qk_nope_head_dim),
        keys(kPageTokens * spec.qk_head_dim()),
        values(kPageTokens * spec.v_head_dim) {}

  Buffer<float> group_a;         // [R, 4 * 64]: one task's outputs
  Buffer<float> group_b;         // [R, 4 * 64]
  Buffer<float> head;            // one head's absorbed queries or values [rows, dim], or a KV block's expansion
  Buffer<uint16_t> head_narrow;  // [rows, qk_nope_head_dim]
  Buffer<uint16_t> keys;         // [page_tokens, qk_head_dim]: one head's expanded keys of a KV block
  Buffer<uint16_t> values;       // [page_tokens, v_head_dim]
};

struct Activations {
  Activations(const ModelSpec& spec, int64_t max_rows, int threads);

  Buffer<float> residual;                // [R, H]
  Buffer<float> normed;                  // [R, H]: what the router reads
  Buffer<uint16_t> normed_narrow;        // [R, H]: the same in BF16, what every linear reads
  Buffer<float> cosine;                  // [R, qk_rope_head_dim / 2]
  Buffer<float> sine;                    // [R, qk_rope_head_dim / 2]
  Buffer<float> q_a;                     // [R, q_lora_rank]
  Buffer<uint16_t> q_a_narrow;           // [R, q_lora_rank]
  Buffer<float> q;                       // [R, A, qk_head_dim]
  Buffer<float> kv_a;                    // [R, kv_dim]; GQA: keys of all rows, then values
  Buffer<uint16_t> queries;              // [kv heads, R, group, qk_head_dim]; absorbed [kAbsorbedRows, A, kv_dim]
  Buffer<uint16_t> latents;              // [kAbsorbedRows, A, kv_lora_rank]: attended, absorbed form
  Buffer<uint16_t> attended;             // [R, AttendedStride]
  Buffer<float> router_logits;           // [R, num_experts]
  std::vector<ExpertChoice> choices;     // [R, experts_per_token]
  std::vector<absl::Status> row_status;  // [R]: of routing
  ExpertPlan plan;                       // of the choices
  std::vector<ExpertRows> pieces;        // of experts that one run of the pool computes
  Buffer<uint16_t> gathered;             // [R * experts_per_token, H]: rows of normed_narrow, by expert
  Buffer<uint16_t> routed_gated;         // [R * experts_per_token, RowStride(moe_intermediate_size)]
  Buffer<uint16_t> always_gated;         // [R, RowStride(width)] of the dense MLP or the shared expert
  Buffer<float> logits;                  // [kLogitRows, vocab_size]
  std::vector<WorkerScratch> workers;
};

// Bytes of Activations, about: exact but for the little that does not grow with rows.
int64_t ActivationBytes(const ModelSpec& spec, int64_t max_rows, int threads);

// Rows whose logits are computed together: enough to share the reading of the head, few enough to bound the buffer.
inline constexpr int64_t kLogitRows = 16;

}  // namespace moestro
