// How the attention of a batch is cut into tasks: geometry alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/math.h"
#include "common/model/attention/flash_attention.h"

namespace moestro {

// Blocks of one partial result: long enough that merging (one pass over the sums) costs nothing beside 16 passes over
// keys and values, short enough that 4K tokens already make work for four threads.
inline constexpr int64_t kAttentionSplitBlocks = 16;

// Most queries of a unit.
int64_t UnitQueryLimit(const AttentionShape& shape);

// What one task computes: some rows of one run for some heads. It has several kv_heads only if it has their whole
// groups for all rows of the run, and several rows only with whole groups; so the queries of a kv_head lie one behind
// the other. Query i: kv_head i / (rows * heads), then row, then head.
struct AttentionUnit {
  int64_t run = 0;
  int64_t row = 0;  // of the batch
  int64_t rows = 0;
  int64_t kv_head = 0;
  int64_t kv_heads = 0;
  int64_t head = 0;  // in the group
  int64_t heads = 0;
  int64_t position = 0;  // of the first row

  int64_t queries_per_kv_head() const { return rows * heads; }
  int64_t queries() const { return kv_heads * rows * heads; }
  int64_t row_of(int64_t query) const { return query % queries_per_kv_head() / heads; }  // in the unit
  int64_t last_position() const { return position + rows - 1; }
  int64_t blocks() const { return last_position() / kAttentionBlock + 1; }
  int64_t splits() const { return CeilDiv(blocks(), kAttentionSplitBlocks); }
};

// Partial results of the unit that has most.
int64_t MaxSplits(std::span<const AttentionUnit> units);

// Units that have every query of the runs once, in the memory that `units` has: of as many queries as fit, but rather
// fewer than that all units' splits are too few for `wanted_tasks`.
void CutUnits(const AttentionShape& shape, std::span<const QueryRun> runs, int64_t wanted_tasks,
              std::vector<AttentionUnit>& units);

}  // namespace moestro
