#include "common/model/flash_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/check.h"
#include "common/base/math.h"

namespace moestro {
namespace {

// Blocks of one partial result: long enough that merging (one pass over the sums) costs nothing beside 16 passes over
// keys and values, short enough that 4K tokens already make work for four threads.
constexpr int64_t kSplitBlocks = 16;
// Sums of a task's queries, in F32 numbers: 256 KiB, which with a block (140 KB for MLA) fits a core's L2 cache.
constexpr int64_t kTaskSums = 64 * 1024;
constexpr int64_t kMaxTaskQueries = 512;
// Fewer queries than this use a packed block too little; no task is cut smaller for the sake of parallelism.
constexpr int64_t kMinTaskQueries = 16;
// Queries whose scores and new sums are computed together: their scratch stays in L1 and L2.
constexpr int64_t kTileQueries = 64;
// Tasks per thread that even out unequal ones.
constexpr int64_t kTasksPerThread = 2;

constexpr SoftmaxState kEmpty{-std::numeric_limits<float>::infinity(), 0};

struct Scratch {
  Scratch(const AttentionShape& shape, int64_t queries)
      : total(queries, shape.value_dim),
        part(queries, shape.value_dim),
        scores(kTileQueries * kAttentionBlock),
        weights(kTileQueries * kAttentionBlock) {}

  AttentionSums total;
  AttentionSums part;
  Buffer<float> scores;      // [tile, block]
  Buffer<uint16_t> weights;  // [tile, block]
};

// What one task computes: some rows of one run for some heads. It has several kv_heads only if it has their whole
// groups for all rows of the run, and several rows only with whole groups; so the queries of a kv_head lie one behind
// the other. Query i: kv_head i / (rows * heads), then row, then head.
struct Unit {
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
  int64_t last_position() const { return position + rows - 1; }
  int64_t blocks() const { return last_position() / kAttentionBlock + 1; }
  int64_t splits() const { return CeilDiv(blocks(), kSplitBlocks); }
};

int64_t QueryLimit(const AttentionShape& shape) {
  return std::clamp<int64_t>(kTaskSums / shape.value_dim, kMinTaskQueries, kMaxTaskQueries);
}

}  // namespace

class FlashAttention::Impl {
 public:
  Impl(const CpuKernels& kernels, WorkerPool& pool, const AttentionShape& shape)
      : kernels_(kernels), pool_(pool), shape_(shape) {
    MOE_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
    for (int i = 0; i < pool.threads(); ++i) scratch_.emplace_back(shape, QueryLimit(shape));
    for (int i = 0; i < 3 * kTasksPerThread * pool.threads(); ++i)
      shared_.emplace_back(QueryLimit(shape), shape.value_dim);
  }

  void Run(std::span<const QueryRun> runs, const uint16_t* queries, BlockSource source, uint16_t* out,
           int64_t out_stride) {
    out_stride_ = out_stride;
    queries_ = queries;
    out_ = out;
    rows_ = runs.empty() ? 0 : runs.back().begin + runs.back().rows;
    MakeUnits(runs);
    const auto count = static_cast<int64_t>(units_.size());
    if (count >= wanted_tasks() || MaxSplits() <= 1) {
      pool_.Run(count, [&](int64_t i, int worker) { AttendAll(units_[i], source, worker); });
    } else {
      RunInWaves(source);
    }
  }

  void Add(std::span<const QueryRun> runs, const uint16_t* queries, std::span<const IndexRange> blocks,
           BlockSource source, AttentionSums& total) {
    queries_ = queries;
    rows_ = runs.empty() ? 0 : runs.back().begin + runs.back().rows;
    MakeUnits(runs);
    pool_.Run(std::ssize(units_), [&](int64_t i, int worker) { AddUnit(units_[i], blocks, source, worker, total); });
  }

  void FinishAll(int64_t rows, const AttentionSums& total, uint16_t* out, int64_t out_stride) {
    pool_.Run(rows, [&](int64_t row, int worker) {
      float* values = scratch_[worker].part.sums.get();
      for (int64_t head = 0; head < shape_.heads; ++head) {
        const int64_t query = (head / shape_.group() * rows + row) * shape_.group() + head % shape_.group();
        const float* sums = total.sums.get() + query * shape_.value_dim;
        for (int64_t n = 0; n < shape_.value_dim; ++n) values[n] = sums[n] / total.states[query].sum;
        kernels_.to_bf16(values, shape_.value_dim, out + row * out_stride + head * shape_.value_dim);
      }
    });
  }

 private:
  int64_t wanted_tasks() const { return kTasksPerThread * pool_.active_threads(); }

  int64_t MaxSplits() const {
    int64_t splits = 0;
    for (const Unit& unit : units_) splits = std::max(splits, unit.splits());
    return splits;
  }

  // As many queries per unit as fit, but rather fewer than too few units for all workers.
  void MakeUnits(std::span<const QueryRun> runs) {
    for (int64_t limit = QueryLimit(shape_);; limit /= 2) {
      MakeUnits(runs, limit);
      const int64_t tasks = static_cast<int64_t>(units_.size()) * MaxSplits();
      if (tasks >= wanted_tasks() || limit / 2 < kMinTaskQueries) return;
    }
  }

  // Whole groups before several rows before several kv_heads: that is how much a packed block is used. Several kv_heads
  // in a task read memory in the order in which it lies.
  void MakeUnits(std::span<const QueryRun> runs, int64_t limit) {
    units_.clear();
    const int64_t heads = std::min(shape_.group(), limit);
    for (size_t run = 0; run < runs.size(); ++run) {
      const int64_t rows = heads < shape_.group() ? 1 : std::min(runs[run].rows, limit / heads);
      const int64_t kv_heads =
          rows < runs[run].rows ? 1 : std::clamp<int64_t>(limit / (heads * rows), 1, shape_.kv_heads);
      for (int64_t kv_head = 0; kv_head < shape_.kv_heads; kv_head += kv_heads) {
        for (int64_t row = 0; row < runs[run].rows; row += rows) {
          for (int64_t head = 0; head < shape_.group(); head += heads) {
            units_.push_back({.run = static_cast<int64_t>(run),
                              .row = runs[run].begin + row,
                              .rows = std::min(rows, runs[run].rows - row),
                              .kv_head = kv_head,
                              .kv_heads = std::min(kv_heads, shape_.kv_heads - kv_head),
                              .head = head,
                              .heads = std::min(heads, shape_.group() - head),
                              .position = runs[run].position + row});
          }
        }
      }
    }
  }

  // One task per unit, its splits one after the other.
  void AttendAll(const Unit& unit, BlockSource source, int worker) {
    Scratch& scratch = scratch_[worker];
    AttendSplit(unit, 0, source, worker, scratch.total);
    for (int64_t split = 1; split < unit.splits(); ++split) {
      AttendSplit(unit, split, source, worker, scratch.part);
      Merge(unit, scratch.part, scratch.total);
    }
    Finish(unit, scratch.total);
  }

  // Few units of many splits: a wave of splits at once, then its merge. shared_ holds one total per unit, then the
  // wave's partial results.
  void RunInWaves(BlockSource source) {
    const auto count = static_cast<int64_t>(units_.size());
    const int64_t width = CeilDiv(wanted_tasks(), count);
    const int64_t splits = MaxSplits();
    MOE_CHECK(count * width <= static_cast<int64_t>(shared_.size()) - count);
    const auto partial = [&](int64_t unit, int64_t i) -> AttentionSums& { return shared_[count + unit * width + i]; };
    for (int64_t begin = 0; begin < splits; begin += width) {
      const int64_t end = std::min(splits, begin + width);
      pool_.Run(count * (end - begin), [&](int64_t task, int worker) {
        const int64_t unit = task / (end - begin);
        const int64_t split = begin + task % (end - begin);
        if (split >= units_[unit].splits()) return;
        AttendSplit(units_[unit], split, source, worker, split == 0 ? shared_[unit] : partial(unit, split - begin));
      });
      pool_.Run(count, [&](int64_t unit, int) {
        const int64_t last = units_[unit].splits();
        for (int64_t split = std::max<int64_t>(1, begin); split < std::min(end, last); ++split) {
          Merge(units_[unit], partial(unit, split - begin), shared_[unit]);
        }
        if (begin < last && last <= end) Finish(units_[unit], shared_[unit]);
      });
    }
  }

  void AttendSplit(const Unit& unit, int64_t split, BlockSource source, int worker, AttentionSums& part) {
    const int64_t begin = split * kSplitBlocks;
    AttendBlocks(unit, {begin, std::min(unit.blocks(), begin + kSplitBlocks)}, source, worker, part);
  }

  void AttendBlocks(const Unit& unit, IndexRange blocks, BlockSource source, int worker, AttentionSums& part) {
    part.Clear(unit.queries(), shape_.value_dim);
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      for (int64_t k = 0; k < unit.kv_heads; ++k) {
        AddBlock(unit, block, k, block + 1 == blocks.end, source, worker, part);
      }
    }
  }

  // What the unit's queries see of some blocks, into sums [kv_heads, rows_, group].
  void AddUnit(const Unit& unit, std::span<const IndexRange> blocks, BlockSource source, int worker,
               AttentionSums& total) {
    AttentionSums& part = scratch_[worker].part;
    for (const IndexRange& range : blocks) {
      const int64_t end = std::min(range.end, unit.blocks());
      for (int64_t begin = range.begin; begin < end; begin += kSplitBlocks) {
        AttendBlocks(unit, {begin, std::min(begin + kSplitBlocks, end)}, source, worker, part);
        for (int64_t k = 0; k < unit.kv_heads; ++k) {
          const int64_t first = ((unit.kv_head + k) * rows_ + unit.row) * shape_.group() + unit.head;
          MergeQueries(part, k * unit.queries_per_kv_head(), unit.queries_per_kv_head(), total, first);
        }
      }
    }
  }

  // One block of the unit's k-th kv_head.
  void AddBlock(const Unit& unit, int64_t block, int64_t k, bool last, BlockSource source, int worker,
                AttentionSums& part) {
    const int64_t tokens = std::min(kAttentionBlock, unit.last_position() + 1 - block * kAttentionBlock);
    KvBlock kv = source({.run = unit.run,
                         .block = block,
                         .kv_head = unit.kv_head + k,
                         .kv_heads = {unit.kv_head, unit.kv_head + unit.kv_heads},
                         .tokens = tokens,
                         .more = !last,
                         .worker = worker});
    // Rows that stand before the block see nothing of it.
    const int64_t blind_rows = std::clamp<int64_t>(block * kAttentionBlock - unit.position, 0, unit.rows);
    const int64_t end = (k + 1) * unit.queries_per_kv_head();
    for (int64_t q = k * unit.queries_per_kv_head() + blind_rows * unit.heads; q < end; q += kTileQueries) {
      AddTile(unit, block, tokens, q, std::min(kTileQueries, end - q), kv, scratch_[worker], part);
      kv.prefetch = kv.prefetch_beside_values = nullptr;  // once is enough, as it is to bring the block into a cache
      kv.cached = true;
    }
  }

  // Query i's row in the unit.
  static int64_t RowOf(const Unit& unit, int64_t i) { return i % unit.queries_per_kv_head() / unit.heads; }

  // Queries [begin, begin + count), of one kv_head.
  void AddTile(const Unit& unit, int64_t block, int64_t tokens, int64_t begin, int64_t count, const KvBlock& kv,
               Scratch& scratch, AttentionSums& part) {
    const int64_t kv_head = unit.kv_head + begin / unit.queries_per_kv_head();
    const int64_t in_head = begin % unit.queries_per_kv_head();
    const uint16_t* queries =
        queries_ + ((kv_head * rows_ + unit.row) * shape_.group() + unit.head + in_head) * shape_.key_dim;
    kernels_.linear({DType::kBF16, tokens, shape_.key_dim, kv.keys, nullptr, kv.prefetch, kv.cached}, queries,
                    shape_.key_dim, count, scratch.scores.get(), kAttentionBlock, 0, tokens);
    float* sums = part.sums.get() + begin * shape_.value_dim;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = unit.position + RowOf(unit, begin + i);
      const int64_t visible = std::min(tokens, row + 1 - block * kAttentionBlock);
      const float rescale =
          kernels_.softmax_block(scratch.scores.get() + i * kAttentionBlock, visible, shape_.scale,
                                 &part.states[begin + i], scratch.weights.get() + i * kAttentionBlock);
      if (rescale == 1) continue;  // no new maximum: so it is in most blocks
      for (int64_t n = 0; n < shape_.value_dim; ++n) sums[i * shape_.value_dim + n] *= rescale;
    }
    kernels_.linear_add(
        {DType::kBF16, shape_.value_dim, kAttentionBlock, kv.values, nullptr, kv.prefetch_beside_values, kv.cached},
        scratch.weights.get(), kAttentionBlock, count, sums, shape_.value_dim, 0, shape_.value_dim);
  }

  void Merge(const Unit& unit, const AttentionSums& part, AttentionSums& total) {
    MergeQueries(part, 0, unit.queries(), total, 0);
  }

  // total[to..] += part[from..], brought to the greater of both maxima. A query that stands before the part's tokens
  // has an empty one.
  void MergeQueries(const AttentionSums& part, int64_t from, int64_t count, AttentionSums& total, int64_t to) {
    for (int64_t i = 0; i < count; ++i) {
      const SoftmaxState& source = part.states[from + i];
      SoftmaxState& target = total.states[to + i];
      if (source.sum == 0) continue;
      const float max_score = std::max(source.max_score, target.max_score);
      const float source_factor = std::exp(source.max_score - max_score);
      const float target_factor = std::exp(target.max_score - max_score);
      target = {max_score, std::fma(source.sum, source_factor, target.sum * target_factor)};
      kernels_.axpby(source_factor, part.sums.get() + (from + i) * shape_.value_dim, target_factor, shape_.value_dim,
                     total.sums.get() + (to + i) * shape_.value_dim);
    }
  }

  void Finish(const Unit& unit, AttentionSums& total) {
    for (int64_t i = 0; i < unit.queries(); ++i) {
      float* sums = total.sums.get() + i * shape_.value_dim;
      const float sum = total.states[i].sum;
      for (int64_t n = 0; n < shape_.value_dim; ++n) sums[n] /= sum;
      const int64_t kv_head = unit.kv_head + i / unit.queries_per_kv_head();
      const int64_t head = kv_head * shape_.group() + unit.head + i % unit.heads;
      kernels_.to_bf16(sums, shape_.value_dim,
                       out_ + (unit.row + RowOf(unit, i)) * out_stride_ + head * shape_.value_dim);
    }
  }

  const CpuKernels& kernels_;
  WorkerPool& pool_;
  AttentionShape shape_;
  std::vector<Scratch> scratch_;
  std::vector<AttentionSums> shared_;

  // Of the current run.
  const uint16_t* queries_ = nullptr;
  uint16_t* out_ = nullptr;
  int64_t out_stride_ = 0;
  int64_t rows_ = 0;
  std::vector<Unit> units_;
};

AttentionSums::AttentionSums(int64_t queries, int64_t value_dim)
    : sums(queries * value_dim), states(static_cast<size_t>(queries)) {}

void AttentionSums::Clear(int64_t queries, int64_t value_dim) {
  std::fill_n(sums.get(), queries * value_dim, 0.0f);
  std::fill_n(states.begin(), queries, kEmpty);
}

FlashAttention::FlashAttention(const CpuKernels& kernels, WorkerPool& pool, const AttentionShape& shape)
    : impl_(std::make_unique<Impl>(kernels, pool, shape)) {}
FlashAttention::~FlashAttention() = default;

void FlashAttention::Run(std::span<const QueryRun> runs, const uint16_t* queries, BlockSource source, uint16_t* out,
                         int64_t out_stride) {
  impl_->Run(runs, queries, source, out, out_stride);
}

void FlashAttention::Add(std::span<const QueryRun> runs, const uint16_t* queries, std::span<const IndexRange> blocks,
                         BlockSource source, AttentionSums& total) {
  impl_->Add(runs, queries, blocks, source, total);
}

void FlashAttention::Finish(int64_t rows, const AttentionSums& total, uint16_t* out, int64_t out_stride) {
  impl_->FinishAll(rows, total, out, out_stride);
}

}  // namespace moestro
