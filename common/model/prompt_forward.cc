#include "common/model/prompt_forward.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/attention.h"
#include "common/model/batch.h"
#include "common/model/context.h"
#include "common/model/embedding.h"
#include "common/model/expert_plan.h"
#include "common/model/feed_forward.h"
#include "common/model/rope.h"

namespace moestro {

struct PromptForward::Impl {
  Impl(const ModelSpec& model, const CpuKernels& kernels, WorkerPool& pool, const Options& limits)
      : options(limits),
        rope(model),
        residual(limits.max_rows * model.hidden_size),
        normed_narrow(limits.max_rows * model.hidden_size),
        sums(limits.max_rows * model.hidden_size),
        cosine(limits.max_rows * rope.pairs()),
        sine(limits.max_rows * rope.pairs()),
        choices(limits.max_rows * model.experts_per_token),
        context(model, kernels, pool, limits.tile_rows) {}

  // For every tile: the context's activations are those of its rows.
  void ForTiles(absl::FunctionRef<void(IndexRange rows)> work) {
    const ScopedAffinity pinned = context.pool.PinCaller();
    for (int64_t begin = 0; begin < batch.size(); begin += options.tile_rows) {
      const IndexRange rows{begin, std::min(begin + options.tile_rows, batch.size())};
      Enter(rows);
      work(rows);
    }
  }

  // The context's activations are those of the rows.
  void Enter(IndexRange rows) {
    Activations& a = context.activations;
    a.residual = Buffer<float>::View(residual.get() + rows.begin * context.spec.hidden_size);
    a.normed_narrow = Buffer<uint16_t>::View(normed_narrow.get() + rows.begin * context.spec.hidden_size);
    a.cosine = Buffer<float>::View(cosine.get() + rows.begin * rope.pairs());
    a.sine = Buffer<float>::View(sine.get() + rows.begin * rope.pairs());
  }

  std::span<const EngineRow> RowsOf(IndexRange rows) const { return batch.rows.subspan(rows.begin, rows.size()); }

  // The rows as a batch, whose KV is in `sequences`.
  CheckedBatch BatchOf(IndexRange rows, std::span<const KvPages> sequences) const {
    CheckedBatch tile{RowsOf(rows), sequences, {}};
    for (const SequenceRun& run : batch.runs) {
      const SequenceRun part{std::max(run.begin, rows.begin) - rows.begin, std::min(run.end, rows.end) - rows.begin};
      if (part.begin < part.end) tile.runs.push_back(part);
    }
    return tile;
  }

  // Of attention in parts.
  int64_t part_rows() const { return PartRows(context.spec, form, options.tile_rows); }
  void ForPart(int64_t tile, std::span<const KvPages> sequences,
               absl::FunctionRef<void(const CheckedBatch& batch)> work) {
    const ScopedAffinity pinned = context.pool.PinCaller();
    const IndexRange rows{tile * part_rows(), std::min((tile + 1) * part_rows(), batch.size())};
    Enter(rows);
    work(BatchOf(rows, sequences));
  }
  // For every sequence index.
  std::vector<KvPages> Sequences(const KvPages& kv) const { return std::vector<KvPages>(batch.sequences.size(), kv); }

  const Options options;
  Rope rope;
  // Of all rows.
  Buffer<float> residual;          // [max_rows, hidden]
  Buffer<uint16_t> normed_narrow;  // [max_rows, hidden]: what the experts read
  Buffer<float> sums;              // [max_rows, hidden]: of the layer's experts so far
  Buffer<float> cosine;            // [max_rows, pairs]
  Buffer<float> sine;              // [max_rows, pairs]
  std::vector<ExpertChoice> choices;
  ExpertPlan plan;  // of the layer
  EngineContext context;

  CheckedBatch batch;
  MlaForm form = MlaForm::kAbsorbed;
  std::vector<int64_t> wanted;                  // rows that want logits
  std::optional<AttentionSums> attention_sums;  // of the tile, where attention comes in parts
};

PromptForward::PromptForward(const ModelSpec& spec, const CpuKernels& kernels, WorkerPool& pool, const Options& options)
    : impl_(std::make_unique<Impl>(spec, kernels, pool, options)) {
  MOE_CHECK(options.tile_rows > 0 && options.tile_rows <= options.max_rows);
}
PromptForward::~PromptForward() = default;

int64_t PromptForward::max_rows() const { return impl_->options.max_rows; }

absl::Status PromptForward::Begin(std::span<const EngineRow> rows, std::span<const KvPages> pages, MlaForm form) {
  MOE_ASSIGN_OR_RETURN(impl_->batch, CheckBatch(impl_->context.spec, impl_->options.max_rows, {rows, pages, form}));
  if (!impl_->options.parts && impl_->batch.runs.size() != 1) {
    return absl::InvalidArgumentError("a prompt's pass takes rows of one sequence");
  }
  impl_->form = form;
  if (impl_->options.parts) impl_->attention_sums = PartSums(impl_->context.spec, form, impl_->part_rows());
  impl_->wanted = RowsWithLogits(rows);
  if (static_cast<int64_t>(impl_->wanted.size()) <= kLogitRows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%d rows want logits, a prompt's pass gives %d at most", impl_->wanted.size(), kLogitRows));
}

void PromptForward::Embed(const uint16_t* embedding) {
  impl_->ForTiles([&](IndexRange rows) { EmbedRows(impl_->context, impl_->rope, embedding, impl_->RowsOf(rows)); });
}

void PromptForward::Attention(int64_t layer, const AttentionWeights& weights) {
  impl_->ForTiles([&](IndexRange rows) {
    RunAttention(impl_->context, weights, layer, impl_->BatchOf(rows, impl_->batch.sequences), impl_->form);
  });
}

// The layer's KV is the only one in `kv`.
constexpr int64_t kOnlyLayer = 0;

void PromptForward::ProjectKv(const AttentionWeights& weights, const KvPages& kv) {
  const std::vector<KvPages> sequences = impl_->Sequences(kv);
  impl_->ForTiles([&](IndexRange rows) {
    moestro::ProjectKv(impl_->context, weights, kOnlyLayer, impl_->BatchOf(rows, sequences));
  });
}

int64_t PromptForward::attention_tiles() const { return CeilDiv(impl_->batch.size(), impl_->part_rows()); }

void PromptForward::BeginAttention(int64_t tile, const AttentionWeights& weights) {
  impl_->ForPart(tile, impl_->batch.sequences, [&](const CheckedBatch& batch) {
    moestro::BeginAttention(impl_->context, weights, batch, impl_->form, *impl_->attention_sums);
  });
}

void PromptForward::AttendTo(int64_t tile, const AttentionWeights& weights, const KvPages& kv,
                             std::span<const IndexRange> blocks) {
  impl_->ForPart(tile, impl_->Sequences(kv), [&](const CheckedBatch& batch) {
    moestro::AttendTo(impl_->context, weights, kOnlyLayer, batch, impl_->form, blocks, *impl_->attention_sums);
  });
}

void PromptForward::FinishAttention(int64_t tile, const AttentionWeights& weights) {
  impl_->ForPart(tile, impl_->batch.sequences, [&](const CheckedBatch& batch) {
    moestro::FinishAttention(impl_->context, weights, batch, impl_->form, *impl_->attention_sums);
  });
}

void PromptForward::Dense(const FeedForwardWeights& weights) {
  MOE_CHECK(weights.router == nullptr);  // routing alone can fail
  impl_->ForTiles([&](IndexRange rows) { MOE_CHECK(RunFeedForward(impl_->context, weights, rows.size()).ok()); });
}

absl::Status PromptForward::Route(const FeedForwardWeights& weights) {
  const int64_t per_row = impl_->context.spec.experts_per_token;
  absl::Status status;
  impl_->ForTiles([&](IndexRange rows) {
    if (status.ok()) status = NormAndRoute(impl_->context, weights, rows.size());
    std::copy_n(impl_->context.activations.choices.begin(), rows.size() * per_row,
                impl_->choices.begin() + rows.begin * per_row);
  });
  MOE_RETURN_IF_ERROR(status);
  const int64_t rows = impl_->batch.size();
  impl_->plan.Sort(std::span(impl_->choices).first(rows * per_row), per_row, impl_->context.spec.num_experts);
  std::fill_n(impl_->sums.get(), rows * impl_->context.spec.hidden_size, 0.0f);
  return absl::OkStatus();
}

void PromptForward::Experts(const ExpertSlice& slice) {
  Experts(slice, impl_->plan, impl_->normed_narrow.get(), impl_->sums.get());
}

void PromptForward::Experts(const ExpertSlice& slice, const ExpertPlan& plan, const uint16_t* x, float* sums) {
  const ScopedAffinity pinned = impl_->context.pool.PinCaller();
  RunExperts(MoeContextOf(impl_->context), impl_->options.tile_rows, slice, plan, x, sums);
}

const uint16_t* PromptForward::expert_input() const { return impl_->normed_narrow.get(); }
std::span<const ExpertChoice> PromptForward::choices() const {
  return std::span(impl_->choices).first(impl_->batch.size() * impl_->context.spec.experts_per_token);
}
float* PromptForward::expert_sums() { return impl_->sums.get(); }

void PromptForward::SharedExpert(const MlpWeights& weights) {
  impl_->ForTiles([&](IndexRange rows) {
    AddSharedExpert(MoeContextOf(impl_->context), weights, rows.size(),
                    impl_->sums.get() + rows.begin * impl_->context.spec.hidden_size);
  });
}

void PromptForward::FinalNorm(const float* weights) {
  const ScopedAffinity pinned = impl_->context.pool.PinCaller();
  impl_->context.activations.normed_narrow = Buffer<uint16_t>::View(impl_->normed_narrow.get());
  NormHeadInput(impl_->context, weights, impl_->residual.get(), impl_->wanted);
}

void PromptForward::Head(const HeadSlice& slice) {
  const ScopedAffinity pinned = impl_->context.pool.PinCaller();
  RunHead(impl_->context, slice, static_cast<int64_t>(impl_->wanted.size()));
}

absl::Status PromptForward::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  return FinishLogits(impl_->context, impl_->batch.rows, impl_->wanted, on_logits);
}

int64_t PromptForwardBytes(const ModelSpec& spec, int threads, const PromptForward::Options& options) {
  const int64_t kept = 10 * spec.hidden_size + 4 * spec.qk_rope_head_dim + 24 * spec.experts_per_token;
  return options.max_rows * kept + ActivationBytes(spec, options.tile_rows, threads);
}

}  // namespace moestro
