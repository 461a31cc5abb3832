// What attention needs beside the rows. R = max_rows, A = num_heads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/attention/flash_attention.h"
#include "common/model/buffer.h"
#include "common/model/context.h"
#include "common/model/linear.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Rows whose absorbed queries and attended latents are held at once (at the published geometry 280 KB a row).
inline constexpr int64_t kAbsorbedRows = 32;

// Numbers from one row of attn_out to the next.
inline int64_t AttnOutStride(const ModelSpec& spec) { return RowStride(spec.num_heads * spec.v_head_dim); }

struct AttentionBuffers {
  // For passes of up to max_rows rows on the context's threads.
  AttentionBuffers(const EngineContext& context, int64_t max_rows);
  // Of the buffers, without what FlashAttention takes whatever the number of rows.
  static int64_t Bytes(const ModelSpec& spec, int64_t max_rows, int threads);

  // What one worker of MLA needs for itself.
  struct Scratch {
    Buffer<float> head;          // one head's absorbed queries or values [rows, dim], or a KV block's expansion
    Buffer<uint16_t> head_bf16;  // [kAbsorbedRows, qk_nope_head_dim]
    Buffer<uint16_t> keys;       // [page_tokens, qk_head_dim]: one head's expanded keys of a KV block
    Buffer<uint16_t> values;     // [page_tokens, v_head_dim]
  };

  Buffer<float> q_a;             // [R, q_lora_rank]
  Buffer<uint16_t> q_a_bf16;     // [R, q_lora_rank]
  Buffer<float> q;               // [R, A, qk_head_dim]
  Buffer<float> kv;              // MLA: [R, kv_dim]; GQA: keys of all rows, then values, each [R, kv_dim / 2]
  Buffer<uint16_t> queries;      // [kv heads, R, group, qk_head_dim]; absorbed [kAbsorbedRows, A, kv_dim]
  Buffer<uint16_t> latents;      // [kAbsorbedRows, A, kv_lora_rank]: attended, absorbed form
  Buffer<uint16_t> attn_out;     // [R, AttnOutStride]
  std::vector<Scratch> workers;  // none for GQA

  std::optional<FlashAttention> over_latents;  // MLA, absorbed: all heads are one group
  std::optional<FlashAttention> over_heads;    // each head's own keys and values, or each group's (GQA)

 private:
  AttentionBuffers() = default;
  template <typename Take>
  void Visit(const ModelSpec& spec, int64_t max_rows, int threads, Take&& take);
};

struct AttentionContext : EngineContext {
  AttentionBuffers& buffers;
};

}  // namespace moestro
