// Every buffer of a forward pass, allocated once for the largest batch. R = max_rows, H = hidden_size, A = num_heads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "absl/status/status.h"
#include "common/kv/format.h"
#include "common/model/router.h"
#include "common/tensor/packed_matrix.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Zeroed, on a 64-byte boundary so that no vector load straddles a cache line.
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t count) : data_(static_cast<T*>(::operator new[](Bytes(count), kAlignment))) {
    std::memset(static_cast<void*>(data_.get()), 0, Bytes(count));
  }
  T* get() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static size_t Bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(T); }
  struct Free {
    void operator()(T* data) const { ::operator delete[](data, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
};

// (row, head) pairs that one task of absorbed attention works on. Their queries and sums (about 4.5 KB each at the
// published geometry) and one KV block (74 KB) fit a core's L2 cache together.
inline constexpr int64_t kQueriesPerTile = 32;

// What one worker needs for itself.
struct WorkerScratch {
  WorkerScratch(const ModelSpec& spec, int64_t max_rows)
      : group_a(max_rows * kRowGroup),
        group_b(max_rows * kRowGroup),
        query(kQueriesPerTile * spec.kv_dim()),
        latent_sum(kQueriesPerTile * spec.kv_lora_rank),
        narrow(kQueriesPerTile * std::max(spec.qk_nope_head_dim, spec.kv_lora_rank)),
        expanded(kPageTokens * (spec.qk_nope_head_dim + spec.v_head_dim)),
        keys(kPageTokens * spec.qk_head_dim()),
        value_sum(std::max(max_rows, kQueriesPerTile) * spec.v_head_dim),
        max_score(std::max(max_rows, kQueriesPerTile)),
        sum(std::max(max_rows, kQueriesPerTile)) {}

  Buffer<float> group_a;     // [R, 64]: one row group's outputs
  Buffer<float> group_b;     // [R, 64]
  Buffer<float> query;       // [tile, kv_dim]
  Buffer<float> latent_sum;  // [tile, kv_lora_rank]
  Buffer<uint16_t> narrow;   // [tile, max(qk_nope_head_dim, kv_lora_rank)]
  Buffer<float> expanded;    // [page_tokens, qk_nope_head_dim + v_head_dim]: one head's keys and values of a KV block
  Buffer<float> keys;        // [page_tokens, qk_head_dim]
  Buffer<float> value_sum;   // [max(R, tile), v_head_dim]
  Buffer<float> max_score;   // [max(R, tile)]
  Buffer<float> sum;         // [max(R, tile)]
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
  Buffer<float> kv_a;                    // [R, kv_dim]
  Buffer<uint16_t> attended;             // [R, A, v_head_dim]
  Buffer<float> router_logits;           // [R, num_experts]
  std::vector<ExpertChoice> choices;     // [R, experts_per_token]
  std::vector<absl::Status> row_status;  // [R]: of routing
  Buffer<uint16_t> gathered;             // [R * experts_per_token, H]: rows of normed_narrow, by expert
  Buffer<uint16_t> routed_gated;         // [R * experts_per_token, moe_intermediate_size]
  Buffer<uint16_t> always_gated;         // [R, width of the dense MLP or the shared expert]
  Buffer<float> logits;                  // [kLogitRows, vocab_size]
  std::vector<WorkerScratch> workers;
};

// Rows whose logits are computed together: enough to share the reading of the head, few enough to bound the buffer.
inline constexpr int64_t kLogitRows = 16;

}  // namespace moestro
