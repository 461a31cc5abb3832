// Decoded tokens' attention over keys and values in the weight pool, so that these come from DRAM.
#pragma once

#include <cstdint>
#include <vector>

#include "common/kv/kv_block.h"
#include "common/model/attention/flash_attention.h"
#include "loadtest/bench/benchmark.h"

namespace moestro::bench {

// One token of each of some sequences in each run; each sequence has a place of its own in the pool.
class DecodeAttention {
 public:
  // tokens: a sequence's context. block_bytes: of kAttentionBlock tokens in the cache, all KV heads. REQUIRES:
  // context.weights was prepared, holds all sequences and outlives this, as does `context`.
  DecodeAttention(BenchContext& context, const model::AttentionShape& shape, int64_t block_bytes, int64_t sequences,
                  int64_t tokens);
  virtual ~DecodeAttention() = default;

  int64_t bytes() const { return sequences_ * sequence_bytes_; }
  double Operations() const;

  // Walks over the pool: each run reads what earlier ones did not, until the pool ends.
  void Run();

 protected:
  // The requested heads of a block that begins at `block`.
  virtual KvBlock Block(const model::FlashAttention::BlockRequest& request, const uint8_t* block) = 0;

  BenchContext& context_;
  const model::AttentionShape shape_;
  const int64_t block_bytes_;

 private:
  const int64_t sequences_;
  const int64_t tokens_;
  const int64_t sequence_bytes_;
  model::FlashAttention attention_;
  std::vector<model::QueryRun> runs_;
  std::vector<uint16_t> queries_;
  std::vector<uint16_t> out_;
  int64_t next_ = 0;
};

// Grouped queries over 8 heads of 128 (Qwen3, GLM-4.5, Mixtral), in packed blocks as the engine's cache holds them.
class GqaAttention : public DecodeAttention {
 public:
  GqaAttention(BenchContext& context, int64_t heads, int64_t sequences, int64_t tokens);

 private:
  KvBlock Block(const model::FlashAttention::BlockRequest& request, const uint8_t* block) override;
};

}  // namespace moestro::bench
