// Causal attention of many queries over paged keys and values, in all forms. Grouped queries (GQA); absorbed MLA (all
// heads are one group over the latent vectors); un-absorbed MLA (every head is its own group).
//
// Flash attention: steps of one or a few KV blocks of kAttentionBlock tokens. All queries that share a block (the heads
// of a group, folded, and neighbouring rows) use it in two matrix products with an online softmax in between. Flash
// decoding: a new partial result starts every few blocks, and partial results are merged in order. So one long sequence
// keeps all workers busy.
//
// With a window, blocks that lie before it for all queries of a task are not read.
//
// Both boundaries are fixed positions of the sequence, and a query's arithmetic does not depend on the other queries of
// its task. So its bits are the same for any batch, chunk and number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/base/math.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/buffer.h"
#include "common/platform/worker_pool.h"

namespace moestro::model {

// AttentionShape::step_blocks of MLA, in both forms: a task's sums, 256 KiB, come from L2. With tiles, two blocks per
// step are 1.2 times as fast as one (1.0 to 1.1 without); four are not faster than two.
inline constexpr int64_t kLatentStepBlocks = 2;

struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads; head h reads the keys and values of kv_head h / (heads / kv_heads)
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float scale = 0;  // of scores
  // KV heads whose rows are contiguous, so that they are packed, or read, together. One, or any number if the
  // dimensions are multiples of kRowGroup.
  int64_t kv_heads_together = 1;
  // KV blocks per step of the online softmax: 1, 2, 4, 8 or 16. Value sums are read and written once per step, so more
  // blocks are faster if a task's sums exceed the caches next to a core. Part of the numerics.
  int64_t step_blocks = 1;

  int64_t step_tokens() const { return step_blocks * kAttentionBlock; }

  int64_t group() const { return heads / kv_heads; }
};

// Rows [begin, begin + rows) of the batch: one sequence, consecutive positions from `position` on. Each row sees the
// positions up to its own, or the last ones of them (AttentionRule).
struct QueryRun {
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t position = 0;
};

// What a layer's attention has besides its shape.
struct AttentionRule {
  int64_t window = 0;            // a query sees the last so many positions, its own included; 0: all
  const float* sinks = nullptr;  // [heads]: a scaled score that has a weight but no value; null: none
};

// Softmax-weighted sums of values over some of the visible blocks; value sums are not yet divided by state.sum. Any two
// of them merge by their log-sum-exp.
struct AttentionSums {
  AttentionSums(int64_t queries, int64_t value_dim);
  void Clear(int64_t queries, int64_t value_dim);  // the first `queries`

  Buffer<float> sums;                // [queries, value_dim]
  std::vector<SoftmaxState> states;  // [queries]
};

class FlashAttention {
 public:
  // KV block `block` of a run (positions from block * kAttentionBlock on, `tokens` of them needed) for some KV heads,
  // at most kv_heads_together. The result must stay valid until the same worker's next call. Workers call it
  // concurrently.
  struct BlockRequest {
    int64_t run = 0;  // index into the runs
    int64_t block = 0;
    IndexRange kv_heads;
    int64_t tokens = 0;
    int64_t next_block = 0;  // the block of the worker's next step; `block` if there is none
    int worker = 0;
  };
  using BlockSource = absl::FunctionRef<KvBlock(const BlockRequest& request)>;

  // Memory: 8 sums of 256 KiB and a packed step per worker, for any batch.
  FlashAttention(const CpuKernels& kernels, WorkerPool& pool, const AttentionShape& shape);
  ~FlashAttention();
  FlashAttention(const FlashAttention&) = delete;
  FlashAttention& operator=(const FlashAttention&) = delete;

  // queries: BF16 [kv_heads, rows, group, key_dim] where `rows` are all rows of the runs. out: BF16 [rows, heads,
  // value_dim], row r at out + r * out_stride. Runs are contiguous from row 0 on. Not reentrant.
  // A window needs step_blocks 1.
  void Run(std::span<const QueryRun> runs, const uint16_t* queries, const AttentionRule& rule, BlockSource source,
           uint16_t* out, int64_t out_stride);

  // The same in parts, for keys and values that arrive in parts (context parallelism). `total`: [kv_heads, rows,
  // group], cleared before. Add attends to the visible KV blocks in `blocks`. The result's bits depend on the order and
  // the boundaries of the parts, not on rows or threads. When Finish divides, every query must have seen a token.
  // Neither is reentrant.
  void Add(std::span<const QueryRun> runs, const uint16_t* queries, const AttentionRule& rule,
           std::span<const IndexRange> blocks, BlockSource source, AttentionSums& total);
  void Finish(int64_t rows, const AttentionRule& rule, const AttentionSums& total, uint16_t* out, int64_t out_stride);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::model
