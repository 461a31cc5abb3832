#include "common/engine/cuda/cuda_batch.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/engine/cuda/attention.h"
#include "common/engine/cuda/feed_forward.h"
#include "common/engine/cuda/supported.h"
#include "common/engine/prefill_compute.h"

namespace moestro::engine {
namespace {

// As of a pass of a prompt, whose attention's arrays are not used here.
CudaSizes SizesOf(int64_t max_rows, bool coded) { return CudaSizes::OfPass(max_rows, coded); }

// A GPU calls what is launched at once, so `work` need not live longer.
absl::Status LaunchNow(const char* name, device::Stream& stream,
                       absl::FunctionRef<absl::Status(cuda::Stream native)> work) {
  const auto run = [&](void* native) { return work(static_cast<cuda::Stream>(native)); };
  return stream.Launch({.name = name, .cost = {}, .run = std::ref(run)});
}

}  // namespace

int64_t CudaBatch::Bytes(const weights::ModelSpec& spec, const model::ModelWeights& weights, int64_t max_rows,
                         Int8Activations setting) {
  return DeviceWeights::Bytes(spec, weights) +
         CudaActivations::Bytes(spec, SizesOf(max_rows, TakesCodes(spec, weights, setting))) + StepHead::Bytes(spec);
}

absl::StatusOr<std::unique_ptr<CudaBatch>> CudaBatch::Create(device::Device& device, const weights::ModelSpec& spec,
                                                             const model::ModelWeights& weights,
                                                             const model::ModelWeights& on_device, int64_t max_rows,
                                                             Int8Activations setting) {
  const bool coded = TakesCodes(spec, weights, setting);
  MOE_ASSIGN_OR_RETURN(DeviceWeights dense, DeviceWeights::Copy(device, spec, weights));
  MOE_ASSIGN_OR_RETURN(auto activations, CudaActivations::Allocate(device, spec, SizesOf(max_rows, coded)));
  MOE_ASSIGN_OR_RETURN(StepHead head, StepHead::Create(device, spec));
  MOE_ASSIGN_OR_RETURN(auto has_nan, device::PinnedBuffer<int32_t>::Create(device, spec.num_layers));
  return std::unique_ptr<CudaBatch>(new CudaBatch(device, spec, weights, on_device, coded, std::move(dense),
                                                  std::move(activations), std::move(head), std::move(has_nan)));
}

// The host attends, in either form.
absl::Status CudaBatch::CheckForm(model::MlaForm) const { return absl::OkStatus(); }

void CudaBatch::Begin(std::span<const MicroBatch> micro_batches, const AttentionIo& io) {
  micro_batches_ = micro_batches;
  io_ = io;
  rows_.clear();
  for (const MicroBatch& batch : micro_batches) {
    rows_.insert(rows_.end(), batch.rows.rows.begin(), batch.rows.rows.end());
  }
  inputs_.Begin(rows_, device_);
}

CudaRows CudaBatch::RowsOf(IndexRange rows) const {
  const int64_t pairs = spec_.rotated_dims() / 2;
  return {.spec = spec_,
          .activations = activations_,
          .rows = rows.size(),
          .residual = activations_.residual + rows.begin * spec_.hidden_size,
          .cosine = activations_.cosine + rows.begin * pairs,
          .sine = activations_.sine + rows.begin * pairs,
          .cache = ContiguousCache(spec_, io_.entries + rows.begin * spec_.kv_dim()),
          .stripes = {{{{0, rows.size()}, 0}}}};
}

absl::Status CudaBatch::Embed(device::Stream& stream) {
  const IndexRange all{0, std::ssize(rows_)};
  std::fill_n(has_nan_.get(), spec_.num_layers, 0);
  MOE_RETURN_IF_ERROR(stream.CopyToDevice(BytesOf(activations_.has_nan), BytesOf(has_nan_.get()),
                                          spec_.num_layers * int64_t{sizeof(int32_t)}));
  MOE_RETURN_IF_ERROR(inputs_.Copy(all, activations_, stream));
  return LaunchNow("embed", stream, [&](cuda::Stream native) { return inputs_.Embed(RowsOf(all), native); });
}

absl::Status CudaBatch::PreAttention(int64_t layer, size_t micro_batch, device::Stream& stream) {
  return LaunchNow("pre-attention", stream, [&](cuda::Stream native) {
    return Annotate(RunPreAttention(layer, micro_batches_[micro_batch], native), absl::StrFormat("layer %d", layer));
  });
}

absl::Status CudaBatch::RunPreAttention(int64_t layer, const MicroBatch& batch, cuda::Stream stream) const {
  const CudaRows rows = RowsOf(batch);
  const model::AttentionWeights& w = dense_.get().layers[static_cast<size_t>(layer)].attention;
  MOE_RETURN_IF_ERROR(ProjectDown(rows, w, stream));
  return ProjectPlainQueries(rows, w, io_.queries + batch.first_row * AttentionIo::QueryWidth(spec_), stream);
}

absl::Status CudaBatch::Attend(int64_t, size_t, std::span<const kv::KvPages>, device::Stream&) {
  return absl::UnimplementedError("the CUDA kernels do not attend for such batches; take a schedule whose host does");
}

absl::Status CudaBatch::PostAttention(int64_t layer, size_t micro_batch, device::Stream& stream) {
  return LaunchNow("post-attention", stream, [&](cuda::Stream native) {
    return Annotate(RunPostAttention(layer, micro_batches_[micro_batch], native), absl::StrFormat("layer %d", layer));
  });
}

absl::Status CudaBatch::RunPostAttention(int64_t layer, const MicroBatch& batch, cuda::Stream stream) const {
  const CudaRows rows = RowsOf(batch);
  const model::LayerWeights& w = dense_.get().layers[static_cast<size_t>(layer)];
  MOE_RETURN_IF_ERROR(
      AddOutput(rows, w.attention, io_.outputs + batch.first_row * AttentionIo::OutputWidth(spec_), stream));
  if (!spec_.IsMoeLayer(layer)) return Dense(rows, w.feed_forward, stream);
  MOE_RETURN_IF_ERROR(Route(rows, w.feed_forward, activations_.choices, activations_.has_nan + layer, stream));
  const RoutedRows own = OwnRows(rows);
  MOE_RETURN_IF_ERROR(PlanRows(rows, own, stream));
  const std::span<const model::MlpWeights> experts = on_device_.layers[static_cast<size_t>(layer)].feed_forward.experts;
  for (size_t first = 0; first < experts.size(); first += kMaxExpertsTogether) {
    const size_t count = std::min<size_t>(kMaxExpertsTogether, experts.size() - first);
    MOE_RETURN_IF_ERROR(Experts(rows, own, experts.subspan(first, count), static_cast<int64_t>(first), stream));
  }
  return AddSharedExpert(rows, w.feed_forward.dense, stream);
}

absl::Status CudaBatch::Logits(std::span<const model::EngineRow> rows, std::span<const int64_t> places,
                               device::Stream& stream,
                               absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(has_nan_.get()), BytesOf(activations_.has_nan),
                                        spec_.num_layers * int64_t{sizeof(int32_t)}));
  MOE_RETURN_IF_ERROR(stream.Synchronize());
  MOE_RETURN_IF_ERROR(CheckScores({has_nan_.get(), static_cast<size_t>(spec_.num_layers)}));
  return head_.Logits(spec_, dense_.get(), coded_, activations_.residual, rows, places, stream, on_logits);
}

}  // namespace moestro::engine
