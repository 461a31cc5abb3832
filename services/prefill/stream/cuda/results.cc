#include "services/prefill/stream/cuda/results.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/model/head.h"
#include "services/prefill/stream/cuda/bytes.h"

namespace moestro {
namespace {

template <typename T>
int64_t SizeInBytes(const std::vector<T>& values) {
  return std::ssize(values) * static_cast<int64_t>(sizeof(T));
}

}  // namespace

void CudaResults::Begin(const ModelSpec& spec, std::span<const EngineRow> rows) {
  rows_ = rows;
  wanted_ = RowsWithLogits(rows);
  logits_.resize(wanted_.size() * spec.vocab_size);
  has_nan_.assign(spec.num_layers, 0);
}

absl::Status CudaResults::Clear(const CudaActivations& activations, device::Stream& stream) const {
  return stream.CopyToDevice(BytesOf(activations.has_nan), BytesOf(has_nan_.data()), SizeInBytes(has_nan_));
}

absl::Status CudaResults::LaunchHead(const CudaPass& pass, const ModelWeights& weights, const StagedModule& slice,
                                     cuda::Stream stream) const {
  const ModelSpec& spec = pass.spec;
  const CudaActivations& a = pass.activations;
  const Module& module = *slice.module;
  if (module.index == 0) {
    const auto* norm = reinterpret_cast<const float*>(module.image.Relocated(BytesOf(weights.final_norm), slice.base));
    for (size_t i = 0; i < wanted_.size(); ++i) {
      MOE_RETURN_IF_ERROR(
          LaunchStatus(cuda::LaunchRmsNorm({.x = a.residual + wanted_[i] * spec.hidden_size,
                                            .x_stride = spec.hidden_size,
                                            .weight = norm,
                                            .rows = 1,
                                            .n = spec.hidden_size,
                                            .eps = static_cast<float>(spec.rms_norm_eps),
                                            .out_bf16 = a.head_input + static_cast<int64_t>(i) * pass.hidden_stride(),
                                            .out_bf16_stride = pass.hidden_stride()},
                                           stream)));
    }
  }
  const PackedMatrix matrix = Staged(SliceRows(weights.head, module.first, module.rows), module.image, slice.base);
  return LaunchStatus(
      cuda::LaunchLinear(ShapeOf(matrix, a.head_input, pass.hidden_stride(), a.logits + module.first, spec.vocab_size),
                         PointersOf(matrix), std::ssize(wanted_), stream));
}

absl::Status CudaResults::Fetch(const CudaActivations& activations, device::Stream& stream) {
  MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(has_nan_.data()), BytesOf(activations.has_nan), SizeInBytes(has_nan_)));
  return stream.CopyToHost(BytesOf(logits_.data()), BytesOf(activations.logits), SizeInBytes(logits_));
}

absl::Status CudaResults::Logits(const ModelSpec& spec,
                                 absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  if (const auto layer = std::ranges::find_if(has_nan_, [](int32_t nan) { return nan != 0; });
      layer != has_nan_.end()) {
    return absl::InternalError(absl::StrFormat("layer %d: scores of experts are NaN", layer - has_nan_.begin()));
  }
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const std::span logits(&logits_[i * spec.vocab_size], static_cast<size_t>(spec.vocab_size));
    MOE_RETURN_IF_ERROR(FinishRow(rows_[wanted_[i]], spec.token_count, logits));
    on_logits(wanted_[i], logits);
  }
  return absl::OkStatus();
}

}  // namespace moestro
