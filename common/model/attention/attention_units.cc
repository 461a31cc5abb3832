#include "common/model/attention/attention_units.h"

#include <algorithm>

namespace moestro::model {
namespace {

// F32 elements of a task's sums: 256 KiB, which fits a core's L2 cache beside a block (140 KB for MLA).
constexpr int64_t kTaskSums = 64 * 1024;
constexpr int64_t kMaxTaskQueries = 512;
// Fewer queries use a packed block too little; no task is cut smaller for the sake of parallelism.
constexpr int64_t kMinTaskQueries = 16;

// Prefers whole groups, then several rows, then several kv_heads: in this order they reuse a packed block. Several
// kv_heads in a task read memory sequentially.
void CutUnitsOf(const AttentionShape& shape, std::span<const QueryRun> runs, int64_t window, int64_t limit,
                std::vector<AttentionUnit>& units) {
  units.clear();
  const int64_t heads = std::min(shape.group(), limit);
  for (size_t run = 0; run < runs.size(); ++run) {
    const int64_t rows = heads < shape.group() ? 1 : std::min(runs[run].rows, limit / heads);
    const int64_t kv_heads = rows < runs[run].rows ? 1 : std::clamp<int64_t>(limit / (heads * rows), 1, shape.kv_heads);
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += kv_heads) {
      for (int64_t row = 0; row < runs[run].rows; row += rows) {
        for (int64_t head = 0; head < shape.group(); head += heads) {
          units.push_back({.run = static_cast<int64_t>(run),
                           .row = runs[run].begin + row,
                           .rows = std::min(rows, runs[run].rows - row),
                           .kv_head = kv_head,
                           .kv_heads = std::min(kv_heads, shape.kv_heads - kv_head),
                           .head = head,
                           .heads = std::min(heads, shape.group() - head),
                           .position = runs[run].position + row,
                           .window = window});
        }
      }
    }
  }
}

}  // namespace

int64_t UnitQueryLimit(const AttentionShape& shape) {
  return std::clamp<int64_t>(kTaskSums / shape.value_dim, kMinTaskQueries, kMaxTaskQueries);
}

int64_t MaxSplits(std::span<const AttentionUnit> units) {
  int64_t splits = 0;
  for (const AttentionUnit& unit : units) splits = std::max(splits, unit.splits());
  return splits;
}

void CutUnits(const AttentionShape& shape, std::span<const QueryRun> runs, int64_t window, int64_t wanted_tasks,
              std::vector<AttentionUnit>& units) {
  for (int64_t limit = UnitQueryLimit(shape);; limit /= 2) {
    CutUnitsOf(shape, runs, window, limit, units);
    if (std::ssize(units) * MaxSplits(units) >= wanted_tasks || limit / 2 < kMinTaskQueries) return;
  }
}

}  // namespace moestro::model
