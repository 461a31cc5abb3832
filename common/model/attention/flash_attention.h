// Causal attention of many queries over paged keys and values, for every form of it: grouped queries (GQA), absorbed
// MLA (all heads are one group over the latent vectors) and un-absorbed MLA (every head its own group).
//
// Flash attention: steps of one or a few KV blocks of kAttentionBlock tokens, each used by all queries that share it
// (the heads of a group, folded, and neighbouring rows) as two matrix products with an online softmax between. Flash
// decoding: every few blocks a new partial result starts, and partial results are merged in order; so one long sequence
// keeps all workers busy.
//
// Both boundaries are fixed positions of the sequence, and a query's arithmetic does not depend on which queries share
// a task: its bits are the same for any batch, chunk and number of threads.
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

namespace moestro {

// AttentionShape::step_blocks of MLA, in both forms: a task's sums, 256 KiB, come from L2. With tiles two blocks a step
// are 1.2 times as fast as one (1.0 to 1.1 without), four are not faster than two.
inline constexpr int64_t kLatentStepBlocks = 2;

struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads; head h reads the keys and values of kv_head h / (heads / kv_heads)
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float scale = 0;  // of scores
  // KV heads whose rows lie side by side, so that they are packed, or read, together: one, or with dimensions that are
  // multiples of kRowGroup any number.
  int64_t kv_heads_together = 1;
  // KV blocks of a step of the online softmax, 1, 2, 4, 8 or 16. Sums of values are read and written once in a step, so
  // where those of a task exceed the caches next to a core more are faster. Part of the numerics.
  int64_t step_blocks = 1;

  int64_t step_tokens() const { return step_blocks * kAttentionBlock; }

  int64_t group() const { return heads / kv_heads; }
};

// Rows [begin, begin + rows) of the batch belong to one sequence and stand at consecutive positions from `position` on.
// Each sees all positions up to its own.
struct QueryRun {
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t position = 0;
};

// Softmax-weighted sums of values over some of the blocks that queries see: value sums still to be divided by
// state.sum. Two of them merge by their log-sum-exp, whatever blocks they are of.
struct AttentionSums {
  AttentionSums(int64_t queries, int64_t value_dim);
  void Clear(int64_t queries, int64_t value_dim);  // the first ones

  Buffer<float> sums;                // [queries, value_dim]
  std::vector<SoftmaxState> states;  // [queries]
};

class FlashAttention {
 public:
  // A run's KV block `block` (positions from block * kAttentionBlock on, `tokens` of them needed) for some KV heads, at
  // most kv_heads_together. The result must stay valid until the same worker asks again. Called on the workers,
  // concurrently.
  struct BlockRequest {
    int64_t run = 0;  // index into the runs
    int64_t block = 0;
    IndexRange kv_heads;
    int64_t tokens = 0;
    int64_t next_block = 0;  // that the worker asks for a step later; `block` if it does not
    int worker = 0;
  };
  using BlockSource = absl::FunctionRef<KvBlock(const BlockRequest& request)>;

  // Memory: 8 sums of 256 KiB and a packed step for every worker, whatever the batch.
  FlashAttention(const CpuKernels& kernels, WorkerPool& pool, const AttentionShape& shape);
  ~FlashAttention();
  FlashAttention(const FlashAttention&) = delete;
  FlashAttention& operator=(const FlashAttention&) = delete;

  // queries: BF16 [kv_heads, rows, group, key_dim] where `rows` are all rows of the runs; out: BF16 [rows, heads,
  // value_dim], row r at out + r * out_stride. Runs lie one behind the other from row 0 on. Not reentrant.
  void Run(std::span<const QueryRun> runs, const uint16_t* queries, BlockSource source, uint16_t* out,
           int64_t out_stride);

  // The same in parts, for keys and values that are not all there at once (context parallelism). `total`, cleared
  // before: of queries [kv_heads, rows, group]. Add: what they see of the KV blocks in `blocks`. The bits of the result
  // depend on the order of the parts and on where they begin, not on rows or threads. A query must have seen something
  // when Finish divides; both are not reentrant.
  void Add(std::span<const QueryRun> runs, const uint16_t* queries, std::span<const IndexRange> blocks,
           BlockSource source, AttentionSums& total);
  void Finish(int64_t rows, const AttentionSums& total, uint16_t* out, int64_t out_stride);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
