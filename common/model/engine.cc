#include "common/model/engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/model/attention.h"
#include "common/model/batch.h"
#include "common/model/binding.h"
#include "common/model/context.h"
#include "common/model/feed_forward.h"
#include "common/model/linear.h"
#include "common/model/rope.h"
#include "common/tensor/dtype.h"

namespace moestro {

struct Engine::Impl {
  Impl(const WeightSegment& segment, const CpuKernels& kernels, WorkerPool& pool, int64_t rows, ModelWeights bound)
      : max_rows(rows),
        weights(std::move(bound)),
        rope(segment.spec()),
        context{.spec = segment.spec(),
                .kernels = kernels,
                .pool = pool,
                .activations = Activations(segment.spec(), rows, pool.threads()),
                .absorbed_attention = FlashAttention(kernels, pool, AbsorbedShape(segment.spec())),
                .unabsorbed_attention = FlashAttention(kernels, pool, UnabsorbedShape(segment.spec()))} {}

  void Embed(const CheckedBatch& batch);
  absl::Status RunLayer(const CheckedBatch& batch, int64_t layer, MlaForm form);
  absl::Status Logits(const CheckedBatch& batch,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);
  // Logits of up to kLogitRows rows.
  void ComputeLogits(std::span<const int64_t> rows);

  int64_t max_rows;
  ModelWeights weights;
  Rope rope;
  EngineContext context;
};

namespace {

std::vector<int64_t> RowsWithLogits(const CheckedBatch& batch) {
  std::vector<int64_t> wanted;
  for (int64_t row = 0; row < batch.size(); ++row) {
    if (batch.rows[row].wants_logits) wanted.push_back(row);
  }
  return wanted;
}

// Padding ids become -inf. INTERNAL if a logit is NaN.
absl::Status FinishLogits(const EngineRow& row, int64_t token_count, std::span<float> logits) {
  std::ranges::fill(logits.subspan(token_count), -std::numeric_limits<float>::infinity());
  const auto nan = std::ranges::find_if(logits, [](float logit) { return std::isnan(logit); });
  if (nan == logits.end()) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("logit of token %d is NaN at position %d of sequence %d",
                                             nan - logits.begin(), row.position, row.sequence));
}

}  // namespace

void Engine::Impl::Embed(const CheckedBatch& batch) {
  const int64_t hidden = context.spec.hidden_size;
  context.pool.Run(batch.size(), [&](int64_t row, int) {
    const uint16_t* embedding = weights.embedding + batch.rows[row].token * hidden;
    std::transform(embedding, embedding + hidden, context.activations.residual.get() + row * hidden, FromBf16);
    rope.Angles(batch.rows[row].position, context.activations.cosine.get() + row * rope.pairs(),
                context.activations.sine.get() + row * rope.pairs());
  });
}

absl::Status Engine::Impl::RunLayer(const CheckedBatch& batch, int64_t layer, MlaForm form) {
  const LayerWeights& w = weights.layers[layer];
  RunAttention(context, w.attention, layer, batch, form);
  return Annotate(RunFeedForward(context, w.feed_forward, batch.size()), absl::StrFormat("layer %d", layer));
}

void Engine::Impl::ComputeLogits(std::span<const int64_t> rows) {
  Activations& a = context.activations;
  const ModelSpec& spec = context.spec;
  const auto count = static_cast<int64_t>(rows.size());
  context.pool.Run(count, [&](int64_t i, int) {
    context.kernels.rms_norm(a.residual.get() + rows[i] * spec.hidden_size, weights.final_norm, spec.hidden_size,
                             static_cast<float>(spec.rms_norm_eps), nullptr,
                             a.normed_narrow.get() + i * spec.hidden_size);
  });
  const LinearJob job[] = {{weights.head, {a.normed_narrow.get(), spec.hidden_size, count}, a.logits.get()}};
  RunLinears(context, job);
}

absl::Status Engine::Impl::Logits(const CheckedBatch& batch,
                                  absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const ModelSpec& spec = context.spec;
  const std::vector<int64_t> wanted = RowsWithLogits(batch);
  for (size_t begin = 0; begin < wanted.size(); begin += kLogitRows) {
    const auto rows = std::span(wanted).subspan(begin, std::min<size_t>(kLogitRows, wanted.size() - begin));
    ComputeLogits(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span logits(context.activations.logits.get() + i * spec.vocab_size,
                             static_cast<size_t>(spec.vocab_size));
      MOE_RETURN_IF_ERROR(FinishLogits(batch.rows[rows[i]], spec.token_count, logits));
      on_logits(rows[i], logits);
    }
  }
  return absl::OkStatus();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const WeightSegment& segment, const CpuKernels& kernels,
                                                       WorkerPool& pool, const Options& options) {
  if (options.max_rows < 1) {
    return absl::InvalidArgumentError(absl::StrFormat("engine: max_rows is %d, expected 1 or more", options.max_rows));
  }
  MOE_ASSIGN_OR_RETURN(ModelWeights weights, BindWeights(segment));
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(segment, kernels, pool, options.max_rows, std::move(weights))));
}

int64_t Engine::max_rows() const { return impl_->max_rows; }
const ModelSpec& Engine::spec() const { return impl_->context.spec; }

absl::Status Engine::Forward(const ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                             absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  MOE_ASSIGN_OR_RETURN(const CheckedBatch checked, CheckBatch(spec(), max_rows(), batch));
  const ScopedAffinity pinned = impl_->context.pool.PinCaller();
  impl_->Embed(checked);
  for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
    MOE_RETURN_IF_ERROR(interrupted());
    MOE_RETURN_IF_ERROR(impl_->RunLayer(checked, layer, batch.form));
  }
  return impl_->Logits(checked, on_logits);
}

}  // namespace moestro
