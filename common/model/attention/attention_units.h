// Cuts the attention of a batch into tasks: geometry only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/math.h"
#include "common/kv/kv_block.h"
#include "common/model/attention/flash_attention.h"

namespace moestro::model {

// Maximum queries of a unit.
int64_t UnitQueryLimit(const AttentionShape& shape);

// The work of one task: some rows of one run for some heads. A unit with several kv_heads has their whole groups for
// all rows of the run; a unit with several rows has whole groups. So the queries of a kv_head are contiguous. Query i:
// kv_head i / (rows * heads), then row, then head.
struct AttentionUnit {
  int64_t run = 0;
  int64_t row = 0;  // of the batch
  int64_t rows = 0;
  int64_t kv_head = 0;
  int64_t kv_heads = 0;
  int64_t head = 0;  // in the group
  int64_t heads = 0;
  int64_t position = 0;  // of the first row
  int64_t window = 0;    // AttentionRule's

  int64_t queries_per_kv_head() const { return rows * heads; }
  int64_t queries() const { return kv_heads * rows * heads; }
  int64_t row_of(int64_t query) const { return query % queries_per_kv_head() / heads; }  // in the unit
  int64_t last_position() const { return position + rows - 1; }
  int64_t blocks() const { return last_position() / kAttentionBlock + 1; }
  // The first block that a row sees.
  int64_t first_block() const { return FirstSeen(position) / kAttentionBlock; }
  // The first position that the row at this one sees.
  int64_t FirstSeen(int64_t of) const { return window == 0 ? 0 : std::max<int64_t>(0, of + 1 - window); }
  // Partial results, from that of first_block on.
  int64_t first_split() const { return first_block() / kv::kSplitBlocks; }
  int64_t splits() const { return CeilDiv(blocks(), kv::kSplitBlocks) - first_split(); }
};

// The maximum number of partial results of a unit.
int64_t MaxSplits(std::span<const AttentionUnit> units);

// Cuts the runs into units that cover every query once, reusing the memory of `units`. Units are as large as possible,
// but smaller if otherwise all units' splits were fewer than `wanted_tasks`.
void CutUnits(const AttentionShape& shape, std::span<const QueryRun> runs, int64_t window, int64_t wanted_tasks,
              std::vector<AttentionUnit>& units);

}  // namespace moestro::model
