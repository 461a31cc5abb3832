#include "common/engine/host/host_batch.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/model/attention/attention.h"
#include "common/model/moe/feed_forward.h"

namespace moestro::engine {
namespace {

// to[i, :] = from[i, :], rows of `width` elements that lie `to_stride` and `from_stride` apart.
template <typename T>
void CopyRows(const T* from, int64_t from_stride, int64_t rows, int64_t width, T* to, int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row) std::copy_n(from + row * from_stride, width, to + row * to_stride);
}

}  // namespace

struct HostBatch::State {
  State(const weights::ModelSpec& its_spec, const model::ModelWeights& its_weights, const CpuKernels& kernels,
        int64_t max_rows, int threads, int devices)
      : spec(its_spec),
        weights(its_weights),
        pool({.threads = std::max(threads, devices), .domains = devices, .pin = false}),
        context{spec, kernels, pool},
        rope(spec),
        rows(spec, max_rows),
        attention(context, max_rows),
        gating(spec, max_rows),
        experts(spec, max_rows, pool.threads(), model::DenseWidth(spec)),
        head(spec) {}

  model::AttentionContext attention_context() { return {context, attention}; }
  model::RowsView View(const MicroBatch& batch) const {
    return rows.View({batch.first_row, batch.first_row + batch.rows.size()});
  }
  int64_t query_width() const { return AttentionIo::QueryWidth(spec); }
  int64_t output_width() const { return AttentionIo::OutputWidth(spec); }

  void PreAttention(int64_t layer, const MicroBatch& batch) {
    const int64_t count = batch.rows.size(), first = batch.first_row;
    model::ProjectRows(attention_context(), weights.layers[layer].attention, batch.rows.form, View(batch));
    std::copy_n(attention.q.get(), count * query_width(), io.queries + first * query_width());
    std::copy_n(attention.entries.get(), count * spec.kv_dim(), io.entries + first * spec.kv_dim());
  }
  void Attend(int64_t layer, const MicroBatch& batch, std::span<const kv::KvPages> pages) {
    const int64_t count = batch.rows.size(), first = batch.first_row;
    model::CheckedBatch here = batch.rows;
    here.sequences = pages;
    model::StoreEntries(context, 0, here, io.entries + first * spec.kv_dim());
    std::copy_n(io.queries + first * query_width(), count * query_width(), attention.q.get());
    model::AttendRows(attention_context(), weights.layers[layer].attention, 0, here, View(batch));
    CopyRows(attention.attn_out.get(), model::AttnOutStride(spec), count, output_width(),
             io.outputs + first * output_width(), output_width());
  }
  absl::Status PostAttention(int64_t layer, const MicroBatch& batch) {
    const model::LayerWeights& w = weights.layers[layer];
    const model::RowsView view = View(batch);
    CopyRows(io.outputs + batch.first_row * output_width(), output_width(), view.count, output_width(),
             attention.attn_out.get(), model::AttnOutStride(spec));
    model::AddOutputs(attention_context(), w.attention, view);
    return Annotate(model::RunFeedForward({context, experts}, gating, w.feed_forward, view),
                    absl::StrFormat("layer %d", layer));
  }

  const weights::ModelSpec& spec;
  const model::ModelWeights& weights;
  WorkerPool pool;
  model::EngineContext context;
  const model::Rope rope;
  const model::RowBuffers rows;
  model::AttentionBuffers attention;
  model::GatingBuffers gating;
  model::ExpertBuffers experts;
  model::HeadBuffers head;
  std::span<const MicroBatch> micro_batches;
  AttentionIo io;
};

HostBatch::HostBatch(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
                     int64_t max_rows, int threads, int devices)
    : state_(std::make_unique<State>(spec, weights, kernels, max_rows, threads, devices)) {}

HostBatch::~HostBatch() = default;

void HostBatch::Begin(std::span<const MicroBatch> micro_batches, const AttentionIo& io) {
  state_->micro_batches = micro_batches;
  state_->io = io;
}

absl::Status HostBatch::Embed(device::Stream& stream) {
  return stream.Launch({.name = "embed", .cost = {}, .run = [&state = *state_](void*) {
                          for (const MicroBatch& batch : state.micro_batches) {
                            model::EmbedRows(state.context, state.rope, state.weights.embedding, batch.rows.rows,
                                             state.View(batch));
                          }
                          return absl::OkStatus();
                        }});
}

absl::Status HostBatch::PreAttention(int64_t layer, size_t micro_batch, device::Stream& stream) {
  return stream.Launch({.name = "pre-attention", .cost = {}, .run = [&state = *state_, layer, micro_batch](void*) {
                          state.PreAttention(layer, state.micro_batches[micro_batch]);
                          return absl::OkStatus();
                        }});
}

absl::Status HostBatch::Attend(int64_t layer, size_t micro_batch, std::span<const kv::KvPages> pages,
                               device::Stream& stream) {
  return stream.Launch({.name = "attend", .cost = {}, .run = [&state = *state_, layer, micro_batch, pages](void*) {
                          state.Attend(layer, state.micro_batches[micro_batch], pages);
                          return absl::OkStatus();
                        }});
}

absl::Status HostBatch::PostAttention(int64_t layer, size_t micro_batch, device::Stream& stream) {
  return stream.Launch({.name = "post-attention", .cost = {}, .run = [&state = *state_, layer, micro_batch](void*) {
                          return state.PostAttention(layer, state.micro_batches[micro_batch]);
                        }});
}

absl::Status HostBatch::Logits(std::span<const model::EngineRow> rows, std::span<const int64_t> places,
                               device::Stream& stream,
                               absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const model::HeadContext context{state_->context, state_->head};
  return model::ForRowsWithLogits(rows, [&](std::span<const int64_t> wanted) -> absl::Status {
    std::vector<int64_t> at;
    for (const int64_t row : wanted) at.push_back(places[static_cast<size_t>(row)]);
    MOE_RETURN_IF_ERROR(stream.Launch({.name = "head", .cost = {}, .run = [&](void*) {
                                         model::NormHeadInput(context, state_->weights.final_norm,
                                                              state_->rows.View({}).residual, at);
                                         model::RunHead(context, {state_->weights.head, 0}, std::ssize(at));
                                         return absl::OkStatus();
                                       }}));
    MOE_RETURN_IF_ERROR(stream.Synchronize());
    return model::FinishLogits(context, rows, wanted, on_logits);
  });
}

}  // namespace moestro::engine
