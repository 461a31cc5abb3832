// The buffers of attention, besides the rows. R = max_rows, A = num_heads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/attention/flash_attention.h"
#include "common/model/buffer.h"
#include "common/model/context.h"
#include "common/model/linear.h"
#include "common/weights/model_spec.h"

namespace moestro::model {

// Rows whose absorbed queries and summed latents are held at once (280 KB per row at the published geometry).
inline constexpr int64_t kAbsorbedRows = 32;

// Elements between rows of attn_out.
inline int64_t AttnOutStride(const weights::ModelSpec& spec) { return RowStride(spec.num_heads * spec.v_head_dim); }

struct AttentionBuffers {
  // For passes of up to max_rows rows on the context's threads.
  AttentionBuffers(const EngineContext& context, int64_t max_rows);
  // Bytes of the buffers, without FlashAttention's, which do not depend on the number of rows.
  static int64_t Bytes(const weights::ModelSpec& spec, int64_t max_rows, int threads);

  // Scratch memory of one MLA worker.
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
  Buffer<uint16_t> entries;      // [R, kv_dim]: the rows' entries in the cache
  Buffer<uint16_t> queries;      // [kv heads, R, group, qk_head_dim]; absorbed [kAbsorbedRows, A, kv_dim]
  Buffer<uint16_t> latents;      // [kAbsorbedRows, A, kv_lora_rank]: sums of the absorbed form
  Buffer<uint16_t> attn_out;     // [R, AttnOutStride]
  Buffer<uint8_t> coded;         // [R, MostCodedBytes(its widest input)]: inputs of one linear layer
  std::vector<Scratch> workers;  // empty for GQA

  std::optional<FlashAttention> over_latents;  // MLA, absorbed: all heads are one group
  std::optional<FlashAttention> over_heads;    // keys and values of each head, or of each group (GQA)

 private:
  AttentionBuffers() = default;
  template <typename Take>
  void Visit(const weights::ModelSpec& spec, int64_t max_rows, int threads, Take&& take);
};

struct AttentionContext : EngineContext {
  AttentionBuffers& buffers;
};

}  // namespace moestro::model
