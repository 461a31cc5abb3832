#include "common/model/engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/attention/attention.h"
#include "common/model/attention/rope.h"
#include "common/model/batch.h"
#include "common/model/binding.h"
#include "common/model/context.h"
#include "common/model/head.h"
#include "common/model/moe/feed_forward.h"

namespace moestro::model {

struct Engine::Impl {
  Impl(const weights::WeightSegment& segment, const CpuKernels& kernels, WorkerPool& pool, const Options& options,
       ModelWeights bound)
      : max_rows(options.max_rows),
        on_routing(options.on_routing),
        weights(std::move(bound)),
        fp8_inputs(kernels.fp8_activations && HasFp8Weights(segment.spec(), weights)),
        rope(segment.spec()),
        context{segment.spec(), kernels, pool},
        rows(context.spec, max_rows),
        attention(context, max_rows),
        gating(context.spec, max_rows),
        experts(context.spec, max_rows, pool.threads(), DenseWidth(context.spec)),
        head(context.spec) {}

  absl::Status RunLayer(const CheckedBatch& batch, const RowsView& view, int64_t layer);
  absl::Status Logits(std::span<const EngineRow> of, const float* residuals,
                      absl::FunctionRef<absl::Status()> interrupted,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

  int64_t max_rows;
  std::function<void(const LayerRouting& routing)> on_routing;
  ModelWeights weights;
  bool fp8_inputs;
  Rope rope;
  EngineContext context;
  RowBuffers rows;
  AttentionBuffers attention;
  GatingBuffers gating;
  ExpertBuffers experts;
  HeadBuffers head;
};

absl::Status Engine::Impl::RunLayer(const CheckedBatch& batch, const RowsView& view, int64_t layer) {
  const LayerWeights& w = weights.layers[layer];
  RunAttention({context, attention}, w.attention, layer, batch, view);
  MOE_RETURN_IF_ERROR(
      Annotate(RunFeedForward({context, experts}, gating, w.feed_forward, view), absl::StrFormat("layer %d", layer)));
  if (on_routing && w.feed_forward.router != nullptr) {
    on_routing({.layer = layer,
                .choices = std::span(gating.choices).first(batch.size() * context.spec.experts_per_token),
                .x = view.x});
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::Logits(std::span<const EngineRow> of, const float* residuals,
                                  absl::FunctionRef<absl::Status()> interrupted,
                                  absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  return ForRowsWithLogits(of, [&](std::span<const int64_t> wanted) -> absl::Status {
    MOE_RETURN_IF_ERROR(interrupted());
    const HeadContext ends{context, head};
    NormHeadInput(ends, weights.final_norm, residuals, wanted);
    RunHead(ends, {weights.head, 0}, std::ssize(wanted));
    return FinishLogits(ends, of, wanted, on_logits);
  });
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const weights::WeightSegment& segment, const CpuKernels& kernels,
                                                       WorkerPool& pool, const Options& options) {
  if (options.max_rows < 1) {
    return absl::InvalidArgumentError(absl::StrFormat("engine: max_rows is %d, expected 1 or more", options.max_rows));
  }
  MOE_ASSIGN_OR_RETURN(ModelWeights weights, BindWeights(segment));
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(segment, kernels, pool, options, std::move(weights))));
}

int64_t Engine::BufferBytes(const weights::ModelSpec& spec, int64_t max_rows, int threads) {
  return RowBuffers::Bytes(spec, max_rows) + AttentionBuffers::Bytes(spec, max_rows, threads) +
         GatingBuffers::Bytes(spec, max_rows) + ExpertBuffers::Bytes(spec, max_rows, threads, DenseWidth(spec)) +
         HeadBuffers::Bytes(spec);
}

int64_t Engine::max_rows() const { return impl_->max_rows; }
const weights::ModelSpec& Engine::spec() const { return impl_->context.spec; }
bool Engine::fp8_inputs() const { return impl_->fp8_inputs; }

absl::Status Engine::Forward(const ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                             absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  MOE_ASSIGN_OR_RETURN(const CheckedBatch checked, CheckBatch(spec(), max_rows(), batch));
  const ScopedAffinity pinned = impl_->context.pool.PinCaller();
  const RowsView view = impl_->rows.View({0, checked.size()});
  EmbedRows(impl_->context, impl_->rope, impl_->weights.embedding, checked.rows, view);
  for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
    MOE_RETURN_IF_ERROR(interrupted());
    MOE_RETURN_IF_ERROR(impl_->RunLayer(checked, view, layer));
  }
  return impl_->Logits(
      checked.rows, view.residual, [] { return absl::OkStatus(); }, on_logits);
}

absl::Status Engine::Logits(std::span<const EngineRow> rows, std::span<const float> residuals,
                            absl::FunctionRef<absl::Status()> interrupted,
                            absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  MOE_CHECK(std::ssize(residuals) == std::ssize(rows) * spec().hidden_size);
  const ScopedAffinity pinned = impl_->context.pool.PinCaller();
  return impl_->Logits(rows, residuals.data(), interrupted, on_logits);
}

}  // namespace moestro::model
