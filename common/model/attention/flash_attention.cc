#include "common/model/attention/flash_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/model/attention/attention_units.h"

namespace moestro::model {
namespace {

// Queries whose scores and new sums are computed together: their scratch stays in L1 and L2.
constexpr int64_t kTileQueries = 64;
// Tasks per thread, to balance unequal ones.
constexpr int64_t kTasksPerThread = 2;
// Task sums per thread that are merged together.
constexpr int64_t kWaveSums = 3 * kTasksPerThread;

constexpr SoftmaxState kEmpty{-std::numeric_limits<float>::infinity(), 0};

// A view of the sums of some queries.
struct SumsView {
  SumsView(AttentionSums& sums) : values(sums.sums.get()), states(sums.states.data()) {}
  SumsView(float* v, SoftmaxState* s) : values(v), states(s) {}

  float* values;  // [queries, value_dim]
  SoftmaxState* states;
};

struct UnitScratch {
  UnitScratch(const AttentionShape& shape, int64_t queries)
      : total(queries, shape.value_dim),
        part(queries, shape.value_dim),
        keys(shape.step_blocks * PackedBytes(DType::kBF16, kAttentionBlock, shape.kv_heads_together * shape.key_dim)),
        values(PackedBytes(DType::kBF16, shape.kv_heads_together * shape.value_dim, shape.step_tokens())),
        scores(kTileQueries * shape.step_tokens()),
        weights(kTileQueries * shape.step_tokens()) {}

  AttentionSums total;
  AttentionSums part;
  Buffer<uint8_t> keys;  // [block of the step], of kv_heads_together, packed
  Buffer<uint8_t> values;
  Buffer<float> scores;      // [tile, step]
  Buffer<uint16_t> weights;  // [tile, step]
};

// Some KV blocks in one step of the online softmax.
struct BlockStep {
  int64_t begin = 0;   // position
  int64_t tokens = 0;  // visible to the unit

  int64_t end() const { return begin + tokens; }
  int64_t columns() const { return RoundUp(tokens, kAttentionBlock); }
  int64_t tokens_of(int64_t block) const { return std::min(kAttentionBlock, tokens - block * kAttentionBlock); }
};

// Memory to prefetch, piece by piece, beside products that need no prefetch of their own.
class Hint {
 public:
  Hint() = default;
  explicit Hint(const KvBlock& kv) : next_(kv.next), bytes_(kv.next_bytes) {}

  // The next `bytes` bytes; null if fewer are left.
  const uint8_t* Take(int64_t bytes) {
    if (bytes_ < bytes) return nullptr;
    bytes_ -= bytes;
    return std::exchange(next_, next_ + bytes);
  }

 private:
  const uint8_t* next_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace

class FlashAttention::Impl {
 public:
  Impl(const CpuKernels& kernels, WorkerPool& pool, const AttentionShape& shape)
      : kernels_(kernels), pool_(pool), shape_(shape) {
    MOE_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
    MOE_CHECK(kv::kSplitBlocks % shape.step_blocks == 0);
    MOE_CHECK(shape.kv_heads_together == 1 ||
              (shape.key_dim % kRowGroup == 0 && shape.value_dim % kRowGroup == 0));  // contiguous heads
    for (int i = 0; i < pool.threads(); ++i) scratch_.emplace_back(shape, UnitQueryLimit(shape));
  }

  void Run(std::span<const QueryRun> runs, const uint16_t* queries, const AttentionRule& rule, BlockSource source,
           uint16_t* out, int64_t out_stride) {
    out_stride_ = out_stride;
    out_ = out;
    Begin(runs, queries, rule);
    const auto count = static_cast<int64_t>(units_.size());
    if (MaxSplits(units_) <= 1 || (count >= wanted_tasks() && !AttendsByDomain())) {
      pool_.Run(count, [&](int64_t i, int worker) { AttendAll(units_[i], source, worker); });
    } else {
      RunInWaves(source);
    }
  }

  void Add(std::span<const QueryRun> runs, const uint16_t* queries, const AttentionRule& rule,
           std::span<const IndexRange> blocks, BlockSource source, AttentionSums& total) {
    Begin(runs, queries, rule);
    pool_.Run(std::ssize(units_), [&](int64_t i, int worker) { AddUnit(units_[i], blocks, source, worker, total); });
  }

  void FinishAll(int64_t rows, const AttentionRule& rule, const AttentionSums& total, uint16_t* out,
                 int64_t out_stride) {
    pool_.Run(rows, [&](int64_t row, int worker) {
      float* values = scratch_[worker].part.sums.get();
      for (int64_t head = 0; head < shape_.heads; ++head) {
        const int64_t query = (head / shape_.group() * rows + row) * shape_.group() + head % shape_.group();
        const float* sums = total.sums.get() + query * shape_.value_dim;
        Divide(rule, head, total.states[query], sums, values);
        kernels_.to_bf16(values, shape_.value_dim, out + row * out_stride + head * shape_.value_dim);
      }
    });
  }

 private:
  int64_t wanted_tasks() const { return kTasksPerThread * pool_.active_threads(); }

  int64_t MaxQueries() const {
    int64_t queries = 0;
    for (const AttentionUnit& unit : units_) queries = std::max(queries, unit.queries());
    return queries;
  }
  // Partial results of each unit for which shared_ has room, beside the unit's total.
  int64_t RoomForParts() const { return std::ssize(shared_.states) / (std::ssize(units_) * MaxQueries()) - 1; }
  // Whether each domain's workers attend to the splits in its memory (DomainOfBlock): a wave needs one of each domain.
  bool AttendsByDomain() const { return pool_.domains() > 1 && RoomForParts() >= pool_.domains(); }

  void Begin(std::span<const QueryRun> runs, const uint16_t* queries, const AttentionRule& rule) {
    MOE_CHECK(rule.window == 0 || shape_.step_blocks == 1);  // a step begins at a block that a query sees
    queries_ = queries;
    rule_ = rule;
    rows_ = runs.empty() ? 0 : runs.back().begin + runs.back().rows;
    CutUnits(shape_, runs, rule.window, wanted_tasks(), units_);
  }

  // One task per unit, with its splits in sequence.
  void AttendAll(const AttentionUnit& unit, BlockSource source, int worker) {
    UnitScratch& scratch = scratch_[worker];
    AttendSplit(unit, 0, unit.splits(), source, worker, scratch.total);
    for (int64_t split = 1; split < unit.splits(); ++split) {
      AttendSplit(unit, split, unit.splits(), source, worker, scratch.part);
      MergeQueries(scratch.part, 0, unit.queries(), scratch.total, 0);
    }
    Finish(unit, {0, unit.queries()}, scratch.total);
  }

  // For few units with many splits. Each wave computes as many partial results as fit, then merges them, some queries
  // per task. A task computes several consecutive splits, since a task's first block comes from memory without a hint;
  // with several domains, those of its worker's domain among them. shared_ holds a total per unit, then the wave's
  // partial results.
  void RunInWaves(BlockSource source) {
    const auto count = static_cast<int64_t>(units_.size());
    const int64_t queries = MaxQueries();
    const auto shared = [&](int64_t i) -> SumsView {
      return {shared_.sums.get() + i * queries * shape_.value_dim, &shared_.states[i * queries]};
    };
    const auto partial = [&](int64_t unit, int64_t i) { return shared(count * (i + 1) + unit); };
    const int64_t splits = MaxSplits(units_);
    const int64_t room = RoomForParts();
    const int64_t unit_tasks = CeilDiv(wanted_tasks(), count);
    const int64_t domains = AttendsByDomain() ? pool_.domains() : 1;
    const int64_t domain_tasks = CeilDiv(std::min({splits, room, unit_tasks}), domains);
    MOE_CHECK(domain_tasks > 0);
    const int64_t width = std::min(splits, room / (domains * domain_tasks) * domains * domain_tasks);  // of a wave
    MOE_CHECK(width > 0);
    for (int64_t begin = 0; begin < splits; begin += width) {
      const int64_t end = std::min(splits, begin + width);
      const auto attend = [&](int64_t domain, int64_t i, int worker) {
        const AttentionUnit& unit = units_[i / domain_tasks];
        const IndexRange mine = EvenPart(end - begin, i % domain_tasks, domain_tasks);
        const int64_t last = std::min(unit.splits(), begin + mine.end);
        for (int64_t split = begin + mine.begin; split < last; ++split) {
          if (kv::DomainOfBlock((unit.first_split() + split) * kv::kSplitBlocks, domains) != domain) continue;
          AttendSplit(unit, split, domains == 1 ? last : split + 1, source, worker,
                      split == 0 ? shared(i / domain_tasks) : partial(i / domain_tasks, split - begin));
        }
      };
      if (domains > 1) {
        pool_.RunPerDomain([&](int) { return count * domain_tasks; }, attend);
      } else {
        pool_.Run(count * domain_tasks, [&](int64_t i, int worker) { attend(0, i, worker); });
      }
      pool_.Run(count * unit_tasks, [&](int64_t i, int) {
        const AttentionUnit& unit = units_[i / unit_tasks];
        const SumsView total = shared(i / unit_tasks);
        const int64_t last = unit.splits(), task = i % unit_tasks;
        const IndexRange merged = {unit.queries() * task / unit_tasks, unit.queries() * (task + 1) / unit_tasks};
        for (int64_t split = std::max<int64_t>(1, begin); split < std::min(end, last); ++split) {
          MergeQueries(partial(i / unit_tasks, split - begin), merged.begin, merged.size(), total, merged.begin);
        }
        if (begin < last && last <= end) Finish(unit, merged, total);
      });
    }
  }

  // `split` counts from the unit's first one. The worker continues up to `end_split`.
  void AttendSplit(const AttentionUnit& unit, int64_t split, int64_t end_split, BlockSource source, int worker,
                   SumsView part) {
    const int64_t begin = (unit.first_split() + split) * kv::kSplitBlocks;
    const int64_t end = std::min(unit.blocks(), (unit.first_split() + end_split) * kv::kSplitBlocks);
    AttendBlocks(unit, {begin, std::min(end, begin + kv::kSplitBlocks)}, end, source, worker, part);
  }

  // The worker continues up to block `last`.
  void AttendBlocks(const AttentionUnit& unit, IndexRange blocks, int64_t last, BlockSource source, int worker,
                    SumsView part) {
    std::fill_n(part.values, unit.queries() * shape_.value_dim, 0.0f);
    std::fill_n(part.states, unit.queries(), kEmpty);
    const int64_t first = std::max(blocks.begin, unit.first_block());
    for (int64_t block = first; block < blocks.end; block += shape_.step_blocks) {
      const IndexRange step = {block, std::min(block + shape_.step_blocks, blocks.end)};
      for (int64_t k = 0; k < unit.kv_heads; k += shape_.kv_heads_together) {
        const int64_t heads = std::min(shape_.kv_heads_together, unit.kv_heads - k);
        AddStep(unit, step, {k, k + heads}, last, source, worker, part);
      }
    }
  }

  // Adds the visible part of some blocks for the unit's queries to sums [kv_heads, rows_, group].
  void AddUnit(const AttentionUnit& unit, std::span<const IndexRange> blocks, BlockSource source, int worker,
               AttentionSums& total) {
    AttentionSums& part = scratch_[worker].part;
    for (const IndexRange& range : blocks) {
      const int64_t end = std::min(range.end, unit.blocks());
      for (int64_t begin = range.begin; begin < end; begin += kv::kSplitBlocks) {
        if (begin + kv::kSplitBlocks <= unit.first_block()) continue;
        AttendBlocks(unit, {begin, std::min(begin + kv::kSplitBlocks, end)}, end, source, worker, part);
        for (int64_t k = 0; k < unit.kv_heads; ++k) {
          const int64_t first = ((unit.kv_head + k) * rows_ + unit.row) * shape_.group() + unit.head;
          MergeQueries(part, k * unit.queries_per_kv_head(), unit.queries_per_kv_head(), total, first);
        }
      }
    }
  }

  // One step for some of the unit's kv_heads: at most step_blocks blocks.
  void AddStep(const AttentionUnit& unit, IndexRange blocks, IndexRange kv_heads, int64_t last, BlockSource source,
               int worker, SumsView part) {
    const BlockStep step = {
        .begin = blocks.begin * kAttentionBlock,
        .tokens = std::min(blocks.end * kAttentionBlock, unit.last_position() + 1) - blocks.begin * kAttentionBlock};
    UnitScratch& scratch = scratch_[worker];
    std::array<Hint, kv::kSplitBlocks> next;
    // Of the first head, and bytes to the next; of keys, the first block's.
    struct Heads {
      const uint8_t* keys;
      const uint8_t* values;
      int64_t key_bytes;
      int64_t value_bytes;
    } heads = {scratch.keys.get(), scratch.values.get(), packed_key_bytes_,
               PackedBytes(DType::kBF16, shape_.value_dim, step.columns())};
    for (int64_t i = 0; i < blocks.size(); ++i) {
      const int64_t block = blocks.begin + i, after = block + shape_.step_blocks;
      const KvBlock kv = source({.run = unit.run,
                                 .block = block,
                                 .kv_heads = {unit.kv_head + kv_heads.begin, unit.kv_head + kv_heads.end},
                                 .tokens = step.tokens_of(i),
                                 .next_block = after < last ? after : block,
                                 .worker = worker});
      next[i] = Hint(kv);
      if (kv.packed != nullptr) {
        MOE_CHECK(shape_.step_blocks == 1);  // values of a step are one matrix
        if (IsTokenOfKernel(unit)) {
          AttendToken(unit, kv, step, kv_heads, part);
          return;
        }
        heads = {kv.packed, kv.packed + kv.packed_values, kv.head_bytes, kv.head_bytes};
        continue;
      }
      kernels_.pack_keys(kv.keys, kv.key_stride, step.tokens_of(i), kv_heads.size() * shape_.key_dim,
                         scratch.keys.get() + i * packed_step_key_bytes_);
      kernels_.pack_values(kv.values, kv.value_stride, step.tokens_of(i), kv_heads.size() * shape_.value_dim,
                           i * kAttentionBlock, step.columns(), scratch.values.get());
    }
    // Rows before the step see none of it, and neither do those whose windows begin behind it.
    const int64_t blind_rows = std::clamp<int64_t>(step.begin - unit.position, 0, unit.rows);
    const int64_t behind = unit.window == 0 ? unit.rows : step.end() - 1 + unit.window - unit.position;
    const int64_t last_rows = unit.rows - std::clamp<int64_t>(behind, blind_rows, unit.rows);
    for (int64_t k = kv_heads.begin; k < kv_heads.end; ++k) {
      std::array<PackedMatrix, kv::kSplitBlocks> keys;  // of each block
      for (int64_t i = 0; i < blocks.size(); ++i) {
        keys[i] = {DType::kBF16, step.tokens_of(i), shape_.key_dim,
                   heads.keys + i * packed_step_key_bytes_ + (k - kv_heads.begin) * heads.key_bytes};
        keys[i].prefetch = next[i].Take(packed_key_bytes_);
        keys[i].cached = true;
      }
      PackedMatrix values{DType::kBF16, shape_.value_dim, step.columns()};
      values.data = heads.values + (k - kv_heads.begin) * heads.value_bytes;
      values.prefetch = next[0].Take(packed_value_bytes_);
      values.cached = true;
      const int64_t end = (k + 1) * unit.queries_per_kv_head() - last_rows * unit.heads;
      for (int64_t q = k * unit.queries_per_kv_head() + blind_rows * unit.heads; q < end; q += kTileQueries) {
        AddTile(unit, step, q, std::min(kTileQueries, end - q), keys, values, scratch, part);
        for (PackedMatrix& matrix : keys) matrix.prefetch = nullptr;  // prefetched once only
        values.prefetch = nullptr;
      }
    }
  }

  // Whether the kernel for one token's queries supports this unit.
  bool IsTokenOfKernel(const AttentionUnit& unit) const {
    return kernels_.attend_token != nullptr && unit.rows == 1 && unit.heads <= kMaxTokenGroup &&
           shape_.key_dim % kTokenDims == 0 && shape_.value_dim % kTokenDims == 0;
  }

  void AttendToken(const AttentionUnit& unit, const KvBlock& kv, const BlockStep& step, IndexRange kv_heads,
                   SumsView part) {
    const int64_t first = kv_heads.begin * unit.heads;
    kernels_.attend_token(kv, step.tokens,
                          {.first_token = std::max<int64_t>(0, unit.FirstSeen(unit.position) - step.begin),
                           .kv_heads = kv_heads.size(),
                           .group = unit.heads,
                           .key_dim = shape_.key_dim,
                           .value_dim = shape_.value_dim,
                           .scale = shape_.scale,
                           .queries = QueriesOf(unit, unit.kv_head + kv_heads.begin),
                           .query_stride = rows_ * shape_.group() * shape_.key_dim,
                           .states = part.states + first,
                           .sums = part.values + first * shape_.value_dim});
  }

  // The unit's queries of a kv_head.
  const uint16_t* QueriesOf(const AttentionUnit& unit, int64_t kv_head) const {
    return queries_ + ((kv_head * rows_ + unit.row) * shape_.group() + unit.head) * shape_.key_dim;
  }

  // Adds queries [begin, begin + count), of one kv_head.
  void AddTile(const AttentionUnit& unit, const BlockStep& step, int64_t begin, int64_t count,
               std::span<const PackedMatrix> keys, const PackedMatrix& values, UnitScratch& scratch, SumsView part) {
    const int64_t kv_head = unit.kv_head + begin / unit.queries_per_kv_head();
    const int64_t in_head = begin % unit.queries_per_kv_head();
    const uint16_t* queries = QueriesOf(unit, kv_head) + in_head * shape_.key_dim;
    const auto visible = [&](int64_t query) {
      return std::min(step.tokens, unit.position + unit.row_of(query) + 1 - step.begin);
    };
    const int64_t stride = step.columns();
    const int64_t seen = visible(begin + count - 1);  // visible to any of them
    for (int64_t i = 0; i * kAttentionBlock < seen; ++i) {
      kernels_.linear(keys[i], queries, shape_.key_dim, count, scratch.scores.get() + i * kAttentionBlock, stride, 0,
                      keys[i].rows);
    }
    float* sums = part.values + begin * shape_.value_dim;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t before = unit.FirstSeen(unit.position + unit.row_of(begin + i)) - step.begin;
      if (before > 0) std::fill_n(scratch.scores.get() + i * stride, before, kEmpty.max_score);
      const float rescale =
          kernels_.softmax_step(scratch.scores.get() + i * stride, visible(begin + i), stride, shape_.scale,
                                &part.states[begin + i], scratch.weights.get() + i * stride);
      if (rescale == 1) continue;  // no new maximum, as in most steps
      for (int64_t n = 0; n < shape_.value_dim; ++n) sums[i * shape_.value_dim + n] *= rescale;
    }
    kernels_.linear_add(values, scratch.weights.get(), stride, count, sums, shape_.value_dim, 0, shape_.value_dim);
  }

  // total[to..] += part[from..], rescaled to the greater of both maxima. A query before the part's tokens has an empty
  // sum.
  void MergeQueries(SumsView part, int64_t from, int64_t count, SumsView total, int64_t to) {
    for (int64_t i = 0; i < count; ++i) {
      const SoftmaxState& source = part.states[from + i];
      SoftmaxState& target = total.states[to + i];
      if (source.sum == 0) continue;
      const float max_score = std::max(source.max_score, target.max_score);
      const float source_factor = std::exp(source.max_score - max_score);
      const float target_factor = std::exp(target.max_score - max_score);
      target = {max_score, std::fma(source.sum, source_factor, target.sum * target_factor)};
      kernels_.axpby(source_factor, part.values + (from + i) * shape_.value_dim, target_factor, shape_.value_dim,
                     total.values + (to + i) * shape_.value_dim);
    }
  }

  void Finish(const AttentionUnit& unit, IndexRange queries, SumsView total) {
    for (int64_t i = queries.begin; i < queries.end; ++i) {
      float* sums = total.values + i * shape_.value_dim;
      const int64_t kv_head = unit.kv_head + i / unit.queries_per_kv_head();
      const int64_t head = kv_head * shape_.group() + unit.head + i % unit.heads;
      Divide(rule_, head, total.states[i], sums, sums);
      kernels_.to_bf16(sums, shape_.value_dim,
                       out_ + (unit.row + unit.row_of(i)) * out_stride_ + head * shape_.value_dim);
    }
  }

  // values = sums / the sum of all weights, that of the head's sink included.
  void Divide(const AttentionRule& rule, int64_t head, const SoftmaxState& state, const float* sums,
              float* values) const {
    float factor = 1, sum = state.sum;
    if (rule.sinks != nullptr) {
      const float greatest = std::max(state.max_score, rule.sinks[head]);
      factor = std::exp(state.max_score - greatest);
      sum = std::fma(state.sum, factor, std::exp(rule.sinks[head] - greatest));
    }
    for (int64_t n = 0; n < shape_.value_dim; ++n) values[n] = sums[n] * factor / sum;
  }

  const CpuKernels& kernels_;
  WorkerPool& pool_;
  AttentionShape shape_;
  // Sizes for one kv_head.
  int64_t packed_key_bytes_ = PackedBytes(DType::kBF16, kAttentionBlock, shape_.key_dim);
  int64_t packed_step_key_bytes_ = packed_key_bytes_ * shape_.kv_heads_together;  // of all heads, one block
  int64_t packed_value_bytes_ = PackedBytes(DType::kBF16, shape_.value_dim, kAttentionBlock);
  std::vector<UnitScratch> scratch_;
  AttentionSums shared_{kWaveSums * pool_.threads() * UnitQueryLimit(shape_), shape_.value_dim};

  // Of the current run.
  AttentionRule rule_;
  const uint16_t* queries_ = nullptr;
  uint16_t* out_ = nullptr;
  int64_t out_stride_ = 0;
  int64_t rows_ = 0;
  std::vector<AttentionUnit> units_;
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

void FlashAttention::Run(std::span<const QueryRun> runs, const uint16_t* queries, const AttentionRule& rule,
                         BlockSource source, uint16_t* out, int64_t out_stride) {
  impl_->Run(runs, queries, rule, source, out, out_stride);
}

void FlashAttention::Add(std::span<const QueryRun> runs, const uint16_t* queries, const AttentionRule& rule,
                         std::span<const IndexRange> blocks, BlockSource source, AttentionSums& total) {
  impl_->Add(runs, queries, rule, blocks, source, total);
}

void FlashAttention::Finish(int64_t rows, const AttentionRule& rule, const AttentionSums& total, uint16_t* out,
                            int64_t out_stride) {
  impl_->FinishAll(rows, rule, total, out, out_stride);
}

}  // namespace moestro::model
