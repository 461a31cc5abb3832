#include "common/model/attention/attention.h"

#include <algorithm>
#include <vector>

#include "common/model/attention/kinds.h"
#include "common/model/linear.h"

namespace moestro::model {
namespace {

static_assert(kv::kPageTokens == kAttentionBlock, "a page holds one KV block of every layer");

// x = input_norm(residual)
void NormInput(const EngineContext& context, const AttentionWeights& weights, const RowsView& rows) {
  const int64_t hidden = context.spec.hidden_size;
  context.pool.Run(rows.count, [&](int64_t row, int) {
    NormResidual(context, rows.residual + row * hidden, weights.input_norm, nullptr, rows.x + row * hidden);
  });
}

// Computes `q` and the `entries` of all rows, and hands these to `store`.
void Project(const AttentionContext& context, const AttentionWeights& weights, MlaForm form, const RowsView& rows,
             Projections wanted, StoreEntry store) {
  NormInput(context, weights, rows);
  KindOf(context.spec, form).project(context, weights, rows, wanted, store);
}

// Begins the blocks of the batch's rows, so that their entries may be stored in any order.
void BeginBlocks(int64_t layer, const CheckedBatch& batch) {
  for (const SequenceRun& run : batch.runs) {
    batch.pages(run.begin).BeginBlocks(layer, batch.rows[run.begin].position, batch.rows[run.end - 1].position + 1);
  }
}

void StoreRow(int64_t layer, const CheckedBatch& batch, int64_t row, const uint16_t* entry) {
  batch.pages(row).Store(layer, batch.rows[row].position, entry);
}

// Rows `part` of a batch, at most the kind's max_rows, whose `queries` are prepared.
class Attended {
 public:
  Attended(const AttentionContext& context, const AttentionWeights& weights, const CheckedBatch& batch, IndexRange part)
      : context_(context),
        kind_(KindOf(context.spec, batch.form)),
        weights_(weights),
        batch_(batch),
        part_(part),
        flash_(gives_latents() ? *context.buffers.over_latents : *context.buffers.over_heads) {}

  // Computes attn_out of the rows from all positions that they see.
  void Run(int64_t layer) {
    const std::vector<QueryRun> runs = Runs();
    const auto block = [&](const FlashAttention::BlockRequest& request) { return Block(layer, runs, request); };
    flash_.Run(runs, queries(), rule(), block, out(), out_stride());
    if (gives_latents()) kind_.project_values(context_, weights_, part_);
  }
  // The same in parts.
  void Add(int64_t layer, std::span<const IndexRange> blocks, AttentionSums& sums) {
    const std::vector<QueryRun> runs = Runs();
    const auto block = [&](const FlashAttention::BlockRequest& request) { return Block(layer, runs, request); };
    flash_.Add(runs, queries(), rule(), blocks, block, sums);
  }
  void Finish(const AttentionSums& sums) {
    flash_.Finish(part_.size(), rule(), sums, out(), out_stride());
    if (gives_latents()) kind_.project_values(context_, weights_, part_);
  }

 private:
  // Whether attention sums latents, which become values only at the end.
  bool gives_latents() const { return kind_.project_values != nullptr; }

  // The sequences of these rows.
  std::vector<QueryRun> Runs() const {
    std::vector<QueryRun> runs;
    for (const SequenceRun& run : batch_.runs) {
      const int64_t first = std::max(run.begin, part_.begin);
      const int64_t last = std::min(run.end, part_.end);
      if (first < last) runs.push_back({first - part_.begin, last - first, batch_.rows[first].position});
    }
    return runs;
  }

  KvBlock Block(int64_t layer, std::span<const QueryRun> runs, const FlashAttention::BlockRequest& request) const {
    const kv::KvPages& pages = batch_.pages(part_.begin + runs[request.run].begin);
    return kind_.block(context_, weights_, layer, pages, request);
  }

  AttentionRule rule() const { return {weights_.window, weights_.sinks}; }
  const uint16_t* queries() const { return context_.buffers.queries.get(); }
  uint16_t* out() const {
    return gives_latents() ? context_.buffers.latents.get()
                           : context_.buffers.attn_out.get() + part_.begin * AttnOutStride(context_.spec);
  }
  int64_t out_stride() const {
    return gives_latents() ? context_.spec.num_heads * context_.spec.kv_lora_rank : AttnOutStride(context_.spec);
  }

  const AttentionContext& context_;
  const AttentionFunctions& kind_;
  const AttentionWeights& weights_;
  const CheckedBatch& batch_;
  const IndexRange part_;
  FlashAttention& flash_;
};

constexpr Projections kBoth = {.kv = true, .queries = true};

}  // namespace

void RunAttention(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
                  const CheckedBatch& batch, const RowsView& rows) {
  BeginBlocks(layer, batch);
  Project(context, weights, batch.form, rows, kBoth,
          [&](int64_t row, const uint16_t* entry) { StoreRow(layer, batch, row, entry); });
  AttendRows(context, weights, layer, batch, rows);
  AddOutputs(context, weights, rows);
}

void ProjectRows(const AttentionContext& context, const AttentionWeights& weights, MlaForm form, const RowsView& rows) {
  Project(context, weights, form, rows, kBoth, [](int64_t, const uint16_t*) {});
}

void StoreEntries(const EngineContext& context, int64_t layer, const CheckedBatch& batch, const uint16_t* entries) {
  BeginBlocks(layer, batch);
  const int64_t width = context.spec.kv_dim();
  context.pool.Run(batch.size(), [&](int64_t row, int) { StoreRow(layer, batch, row, entries + row * width); });
}

void AttendRows(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
                const CheckedBatch& batch, const RowsView& rows) {
  const AttentionFunctions& kind = KindOf(context.spec, batch.form);
  for (IndexRange part; part.begin < rows.count; part.begin = part.end) {
    part.end = part.begin + std::min(kind.max_rows, rows.count - part.begin);
    kind.prepare_queries(context, weights, rows, part);
    Attended(context, weights, batch, part).Run(layer);
  }
}

void AddOutputs(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows) {
  AddLinear(context, weights.o, {context.buffers.attn_out.get(), AttnOutStride(context.spec), rows.count},
            rows.residual, context.buffers.coded.get());
  if (weights.o_bias == nullptr) return;
  const int64_t hidden = context.spec.hidden_size;
  context.pool.Run(rows.count, [&](int64_t row, int) {
    context.kernels.axpy(1, weights.o_bias, hidden, rows.residual + row * hidden);
  });
}

int64_t PairProducts(const weights::ModelSpec& spec, MlaForm form) {
  const AttentionShape shape = KindOf(spec, form).shape(spec);
  return shape.key_dim + shape.value_dim;
}

int64_t SumWidth(const weights::ModelSpec& spec, MlaForm form) { return KindOf(spec, form).shape(spec).value_dim; }

void ProjectKv(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
               const CheckedBatch& batch, const RowsView& rows) {
  BeginBlocks(layer, batch);
  Project(context, weights, batch.form, rows, {.kv = true},
          [&](int64_t row, const uint16_t* entry) { StoreRow(layer, batch, row, entry); });
}

int64_t PartRows(const weights::ModelSpec& spec, MlaForm form, int64_t tile_rows) {
  return std::min(KindOf(spec, form).max_rows, tile_rows);
}

AttentionSums PartSums(const weights::ModelSpec& spec, MlaForm form, int64_t rows) {
  return {rows * spec.num_heads, SumWidth(spec, form)};
}

void BeginAttention(const AttentionContext& context, const AttentionWeights& weights, const CheckedBatch& batch,
                    const RowsView& rows, AttentionSums& sums) {
  Project(context, weights, batch.form, rows, {.queries = true}, [](int64_t, const uint16_t*) {});
  sums.Clear(rows.count * context.spec.num_heads, SumWidth(context.spec, batch.form));
  KindOf(context.spec, batch.form).prepare_queries(context, weights, rows, {0, rows.count});
}

void AttendTo(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
              const CheckedBatch& batch, std::span<const IndexRange> blocks, AttentionSums& sums) {
  Attended(context, weights, batch, {0, batch.size()}).Add(layer, blocks, sums);
}

void FinishAttention(const AttentionContext& context, const AttentionWeights& weights, const CheckedBatch& batch,
                     const RowsView& rows, const AttentionSums& sums) {
  Attended(context, weights, batch, {0, rows.count}).Finish(sums);
  AddOutputs(context, weights, rows);
}

}  // namespace moestro::model
