#include "common/model/prompt_forward.h"

#include <algorithm>
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
        context{.spec = model,
                .kernels = kernels,
                .pool = pool,
                .activations = Activations(model, limits.tile_rows, pool.threads()),
                .absorbed_attention = FlashAttention(kernels, pool, AbsorbedShape(model)),
                .unabsorbed_attention = FlashAttention(kernels, pool, UnabsorbedShape(model))} {}

  // For every tile: the context's activations are those of its rows.
  void ForTiles(absl::FunctionRef<void(IndexRange rows)> work) {
    const ScopedAffinity pinned = context.pool.PinCaller();
    const int64_t hidden = context.spec.hidden_size;
    for (int64_t begin = 0; begin < batch.size(); begin += options.tile_rows) {
      const IndexRange rows{begin, std::min(begin + options.tile_rows, batch.size())};
      Activations& a = context.activations;
      a.residual = Buffer<float>::View(residual.get() + begin * hidden);
      a.normed_narrow = Buffer<uint16_t>::View(normed_narrow.get() + begin * hidden);
      a.cosine = Buffer<float>::View(cosine.get() + begin * rope.pairs());
      a.sine = Buffer<float>::View(sine.get() + begin * rope.pairs());
      work(rows);
    }
  }

  std::span<const EngineRow> RowsOf(IndexRange rows) const { return batch.rows.subspan(rows.begin, rows.size()); }

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
  std::vector<int64_t> wanted;  // rows that want logits
};

PromptForward::PromptForward(const ModelSpec& spec, const CpuKernels& kernels, WorkerPool& pool, const Options& options)
    : impl_(std::make_unique<Impl>(spec, kernels, pool, options)) {
  MOE_CHECK(options.tile_rows > 0 && options.tile_rows <= options.max_rows);
}
PromptForward::~PromptForward() = default;

int64_t PromptForward::max_rows() const { return impl_->options.max_rows; }

absl::Status PromptForward::Begin(std::span<const EngineRow> rows, std::span<const KvPages> pages, MlaForm form) {
  MOE_ASSIGN_OR_RETURN(impl_->batch, CheckBatch(impl_->context.spec, impl_->options.max_rows, {rows, pages, form}));
  if (impl_->batch.runs.size() != 1) return absl::InvalidArgumentError("a prompt's pass takes rows of one sequence");
  impl_->form = form;
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
    const CheckedBatch tile{impl_->RowsOf(rows), impl_->batch.sequences, {{0, rows.size()}}};
    RunAttention(impl_->context, weights, layer, tile, impl_->form);
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
  impl_->plan = PlanExperts(std::span(impl_->choices).first(rows * per_row), per_row, impl_->context.spec.num_experts);
  std::fill_n(impl_->sums.get(), rows * impl_->context.spec.hidden_size, 0.0f);
  return absl::OkStatus();
}

void PromptForward::Experts(const ExpertSlice& slice) {
  const ScopedAffinity pinned = impl_->context.pool.PinCaller();
  RunExperts(MoeContextOf(impl_->context), impl_->options.tile_rows, slice, impl_->plan, impl_->normed_narrow.get(),
             impl_->sums.get());
}

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
