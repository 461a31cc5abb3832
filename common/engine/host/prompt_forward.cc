#include "common/engine/host/prompt_forward.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/attention/attention.h"
#include "common/model/attention/rope.h"
#include "common/model/batch.h"
#include "common/model/context.h"
#include "common/model/moe/expert_plan.h"
#include "common/model/moe/feed_forward.h"

namespace moestro::engine {

using kv::KvPages;

struct PromptForward::Impl {
  Impl(const weights::ModelSpec& model, const CpuKernels& kernels, WorkerPool& pool, const Options& limits)
      : options(limits),
        rope(model),
        context{model, kernels, pool},
        rows(model, limits.max_rows),
        sums(limits.max_rows * model.hidden_size),
        choices(limits.max_rows * model.experts_per_token),
        attention(context, limits.tile_rows),
        gating(model, limits.tile_rows),
        experts(model, limits.tile_rows, pool.threads(), model::DenseWidth(model)),
        head(model) {}

  model::AttentionContext attention_context() { return {context, attention}; }
  model::MoeContext moe_context() { return {context, experts}; }
  model::HeadContext head_context() { return {context, head}; }

  // For every tile.
  void ForTiles(absl::FunctionRef<void(IndexRange tile)> work) {
    const ScopedAffinity pinned = context.pool.PinCaller();
    for (int64_t begin = 0; begin < batch.size(); begin += options.tile_rows) {
      work({begin, std::min(begin + options.tile_rows, batch.size())});
    }
  }

  std::span<const model::EngineRow> RowsOf(IndexRange tile) const {
    return batch.rows.subspan(tile.begin, tile.size());
  }

  // The tile's rows as a batch, whose KV is in `sequences`.
  model::CheckedBatch BatchOf(IndexRange tile, std::span<const KvPages> sequences) const {
    model::CheckedBatch part{RowsOf(tile), sequences, {}, batch.form};
    for (const model::SequenceRun& run : batch.runs) {
      const model::SequenceRun in_tile{std::max(run.begin, tile.begin) - tile.begin,
                                       std::min(run.end, tile.end) - tile.begin};
      if (in_tile.begin < in_tile.end) part.runs.push_back(in_tile);
    }
    return part;
  }

  // Of attention in parts.
  int64_t part_rows() const { return model::PartRows(context.spec, batch.form, options.tile_rows); }
  void ForPart(int64_t tile, std::span<const KvPages> sequences,
               absl::FunctionRef<void(const model::CheckedBatch& batch, const model::RowsView& rows)> work) {
    const ScopedAffinity pinned = context.pool.PinCaller();
    const IndexRange part{tile * part_rows(), std::min((tile + 1) * part_rows(), batch.size())};
    work(BatchOf(part, sequences), rows.View(part));
  }
  // For every sequence index.
  std::vector<KvPages> Sequences(const KvPages& kv) const { return std::vector<KvPages>(batch.sequences.size(), kv); }

  const Options options;
  model::Rope rope;
  model::EngineContext context;
  // Of all rows.
  model::RowBuffers rows;
  model::Buffer<float> sums;  // [max_rows, hidden]: of the layer's experts so far
  std::vector<model::ExpertChoice> choices;
  model::ExpertPlan plan;  // of the layer
  // Of a tile.
  model::AttentionBuffers attention;
  model::GatingBuffers gating;
  model::ExpertBuffers experts;
  model::HeadBuffers head;

  model::CheckedBatch batch;
  std::vector<int64_t> wanted;                         // rows that want logits
  std::optional<model::AttentionSums> attention_sums;  // of the tile, where attention comes in parts
};

PromptForward::PromptForward(const weights::ModelSpec& spec, const CpuKernels& kernels, WorkerPool& pool,
                             const Options& options)
    : impl_(std::make_unique<Impl>(spec, kernels, pool, options)) {
  MOE_CHECK(options.tile_rows > 0 && options.tile_rows <= options.max_rows);
}
PromptForward::~PromptForward() = default;

int64_t PromptForward::max_rows() const { return impl_->options.max_rows; }

absl::Status PromptForward::Begin(std::span<const model::EngineRow> rows, std::span<const KvPages> pages,
                                  model::MlaForm form) {
  MOE_ASSIGN_OR_RETURN(impl_->batch,
                       model::CheckBatch(impl_->context.spec, impl_->options.max_rows, {rows, pages, form}));
  if (!impl_->options.parts && impl_->batch.runs.size() != 1) {
    return absl::InvalidArgumentError("a prompt's pass takes rows of one sequence");
  }
  if (impl_->options.parts) impl_->attention_sums = model::PartSums(impl_->context.spec, form, impl_->part_rows());
  impl_->wanted = model::RowsWithLogits(rows);
  if (static_cast<int64_t>(impl_->wanted.size()) <= model::kLogitRows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%d rows want logits, a prompt's pass gives %d at most",
                                                    impl_->wanted.size(), model::kLogitRows));
}

void PromptForward::Embed(const model::Embedding& embedding) {
  impl_->ForTiles([&](IndexRange tile) {
    model::EmbedRows(impl_->context, impl_->rope, embedding, impl_->RowsOf(tile), impl_->rows.View(tile));
  });
}

void PromptForward::Attention(int64_t layer, const model::AttentionWeights& weights) {
  impl_->ForTiles([&](IndexRange tile) {
    model::RunAttention(impl_->attention_context(), weights, layer, impl_->BatchOf(tile, impl_->batch.sequences),
                        impl_->rows.View(tile));
  });
}

// The layer's KV is the only one in `kv`.
constexpr int64_t kOnlyLayer = 0;

void PromptForward::ProjectKv(const model::AttentionWeights& weights, const KvPages& kv) {
  const std::vector<KvPages> sequences = impl_->Sequences(kv);
  impl_->ForTiles([&](IndexRange tile) {
    model::ProjectKv(impl_->attention_context(), weights, kOnlyLayer, impl_->BatchOf(tile, sequences),
                     impl_->rows.View(tile));
  });
}

int64_t PromptForward::attention_tiles() const { return CeilDiv(impl_->batch.size(), impl_->part_rows()); }

void PromptForward::BeginAttention(int64_t tile, const model::AttentionWeights& weights) {
  impl_->ForPart(tile, impl_->batch.sequences, [&](const model::CheckedBatch& batch, const model::RowsView& rows) {
    model::BeginAttention(impl_->attention_context(), weights, batch, rows, *impl_->attention_sums);
  });
}

void PromptForward::AttendTo(int64_t tile, const model::AttentionWeights& weights, const KvPages& kv,
                             std::span<const IndexRange> blocks) {
  impl_->ForPart(tile, impl_->Sequences(kv), [&](const model::CheckedBatch& batch, const model::RowsView&) {
    model::AttendTo(impl_->attention_context(), weights, kOnlyLayer, batch, blocks, *impl_->attention_sums);
  });
}

void PromptForward::FinishAttention(int64_t tile, const model::AttentionWeights& weights) {
  impl_->ForPart(tile, impl_->batch.sequences, [&](const model::CheckedBatch& batch, const model::RowsView& rows) {
    model::FinishAttention(impl_->attention_context(), weights, batch, rows, *impl_->attention_sums);
  });
}

void PromptForward::Dense(const model::FeedForwardWeights& weights) {
  MOE_CHECK(weights.router == nullptr);  // routing alone can fail
  impl_->ForTiles([&](IndexRange tile) {
    MOE_CHECK(model::RunFeedForward(impl_->moe_context(), impl_->gating, weights, impl_->rows.View(tile)).ok());
  });
}

absl::Status PromptForward::Route(const model::FeedForwardWeights& weights) {
  const int64_t per_row = impl_->context.spec.experts_per_token;
  absl::Status status;
  impl_->ForTiles([&](IndexRange tile) {
    if (status.ok()) status = model::NormAndRoute(impl_->context, impl_->gating, weights, impl_->rows.View(tile));
    std::copy_n(impl_->gating.choices.begin(), tile.size() * per_row, impl_->choices.begin() + tile.begin * per_row);
  });
  MOE_RETURN_IF_ERROR(status);
  const int64_t rows = impl_->batch.size();
  impl_->plan.Sort(std::span(impl_->choices).first(rows * per_row), per_row, impl_->context.spec.num_experts);
  std::fill_n(impl_->sums.get(), rows * impl_->context.spec.hidden_size, 0.0f);
  return absl::OkStatus();
}

void PromptForward::Experts(const model::ExpertSlice& slice) {
  Experts(slice, impl_->plan, expert_input(), impl_->sums.get());
}

void PromptForward::Experts(const model::ExpertSlice& slice, const model::ExpertPlan& plan, const uint16_t* x,
                            float* sums) {
  const ScopedAffinity pinned = impl_->context.pool.PinCaller();
  model::RunExperts(impl_->moe_context(), slice, plan, x, sums);
}

const uint16_t* PromptForward::expert_input() const { return impl_->rows.View({}).x; }
std::span<const model::ExpertChoice> PromptForward::choices() const {
  return std::span(impl_->choices).first(impl_->batch.size() * impl_->context.spec.experts_per_token);
}

void PromptForward::RunSharedExpert(const model::MlpWeights& weights) {
  if (weights.gate.rows == 0) return;
  impl_->ForTiles([&](IndexRange tile) {
    model::RunSharedExpert(impl_->moe_context(), weights, impl_->rows.View(tile),
                           impl_->sums.get() + tile.begin * impl_->context.spec.hidden_size);
  });
}

void PromptForward::AddExperts(const model::MlpWeights& shared, std::span<float* const> parts) {
  const int64_t hidden = impl_->context.spec.hidden_size;
  const CpuKernels& kernels = impl_->context.kernels;
  const model::RowsView rows = impl_->rows.View({});
  impl_->context.pool.Run(impl_->batch.size(), [&](int64_t row, int) {
    float* const sums = parts[0] + row * hidden;
    for (const float* part : parts.subspan(1)) kernels.axpy(1.0f, part + row * hidden, hidden, sums);
    if (shared.gate.rows > 0) {
      const float weight = rows.shared_weights == nullptr ? 1.0f : rows.shared_weights[row];
      kernels.axpy(weight, impl_->sums.get() + row * hidden, hidden, sums);
    }
    kernels.axpy(1.0f, sums, hidden, rows.residual + row * hidden);
  });
}

void PromptForward::SharedExpert(const model::MlpWeights& weights) {
  impl_->ForTiles([&](IndexRange tile) {
    model::AddSharedExpert(impl_->moe_context(), weights, impl_->rows.View(tile),
                           impl_->sums.get() + tile.begin * impl_->context.spec.hidden_size);
  });
}

float* PromptForward::residuals() const { return impl_->rows.View({}).residual; }

void PromptForward::FinalNorm(const float* weights) {
  const ScopedAffinity pinned = impl_->context.pool.PinCaller();
  model::NormHeadInput(impl_->head_context(), weights, impl_->rows.View({}).residual, impl_->wanted);
}

void PromptForward::Head(const model::HeadSlice& slice) {
  const ScopedAffinity pinned = impl_->context.pool.PinCaller();
  model::RunHead(impl_->head_context(), slice, static_cast<int64_t>(impl_->wanted.size()));
}

absl::Status PromptForward::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  return model::FinishLogits(impl_->head_context(), impl_->batch.rows, impl_->wanted, on_logits);
}

int64_t PromptForwardBytes(const weights::ModelSpec& spec, int threads, const PromptForward::Options& options) {
  const int64_t sums = options.max_rows * 4 * spec.hidden_size;
  const int64_t choices = options.max_rows * 24 * spec.experts_per_token;  // with their plan
  return model::RowBuffers::Bytes(spec, options.max_rows) + sums + choices +
         model::AttentionBuffers::Bytes(spec, options.tile_rows, threads) +
         model::GatingBuffers::Bytes(spec, options.tile_rows) +
         model::ExpertBuffers::Bytes(spec, options.tile_rows, threads, model::DenseWidth(spec)) +
         model::HeadBuffers::Bytes(spec);
}

}  // namespace moestro::engine
