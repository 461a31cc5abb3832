#include "common/engine/cuda/head.h"

#include "common/base/status.h"
#include "common/engine/cuda/feed_forward.h"

namespace moestro::engine {
namespace {

template <typename T>
int64_t SizeInBytes(const std::vector<T>& values) {
  return std::ssize(values) * static_cast<int64_t>(sizeof(T));
}

}  // namespace

absl::Status NormHeadInput(const weights::ModelSpec& spec, const float* final_norm, const float* residual,
                           std::span<const int64_t> wanted, uint16_t* input, cuda::Stream stream) {
  const int64_t hidden = spec.hidden_size, stride = CudaStride(hidden);
  for (size_t i = 0; i < wanted.size(); ++i) {
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRmsNorm({.x = residual + wanted[i] * hidden,
                                                          .x_stride = hidden,
                                                          .weight = final_norm,
                                                          .rows = 1,
                                                          .n = hidden,
                                                          .eps = static_cast<float>(spec.rms_norm_eps),
                                                          .out_bf16 = input + static_cast<int64_t>(i) * stride,
                                                          .out_bf16_stride = stride,
                                                          .subtract_mean = spec.layer_norms != 0},
                                                         stream)));
  }
  return absl::OkStatus();
}

absl::Status RunHead(const weights::ModelSpec& spec, const model::HeadSlice& slice, int64_t count,
                     const CudaInputRows& input, float* logits, cuda::Stream stream) {
  const cuda::LinearShape shape = ShapeOf(slice.weights, input, logits + slice.first, spec.vocab_size);
  return LaunchStatus(cuda::LaunchLinear(shape, PointersOf(slice.weights), count, stream));
}

absl::Status FinishLogits(const weights::ModelSpec& spec, std::span<const model::EngineRow> rows,
                          std::span<const int64_t> wanted, float* logits,
                          absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::span row(logits + static_cast<int64_t>(i) * spec.vocab_size, static_cast<size_t>(spec.vocab_size));
    MOE_RETURN_IF_ERROR(model::FinishRow(rows[static_cast<size_t>(wanted[i])], spec.token_count, row));
    on_logits(wanted[i], row);
  }
  return absl::OkStatus();
}

void CudaResults::Begin(const weights::ModelSpec& spec, std::span<const model::EngineRow> rows) {
  rows_ = rows;
  wanted_ = model::RowsWithLogits(rows);
  logits_.resize(wanted_.size() * spec.vocab_size);
  has_nan_.assign(spec.num_layers, 0);
}

absl::Status CudaResults::Clear(const CudaActivations& activations, device::Stream& stream) const {
  return stream.CopyToDevice(BytesOf(activations.has_nan), BytesOf(has_nan_.data()), SizeInBytes(has_nan_));
}

absl::Status CudaResults::LaunchHead(const CudaRows& rows, const float* final_norm, const model::HeadSlice& slice,
                                     cuda::Stream stream) const {
  const CudaActivations& a = rows.activations;
  const int64_t stride = CudaStride(rows.spec.hidden_size);
  if (final_norm != nullptr) {
    MOE_RETURN_IF_ERROR(NormHeadInput(rows.spec, final_norm, rows.residual, wanted_, a.head_input, stream));
    const auto coded = CodeInPlace(rows.coded(), slice.weights, a.head_input, stride, std::ssize(wanted_), stream);
    MOE_RETURN_IF_ERROR(coded.status());
  }
  const bool coded = rows.coded() && slice.weights.dtype == DType::kI8;
  return RunHead(rows.spec, slice, std::ssize(wanted_), {a.head_input, stride, coded}, a.logits, stream);
}

absl::Status CudaResults::Fetch(const CudaActivations& activations, device::Stream& stream) {
  MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(has_nan_.data()), BytesOf(activations.has_nan), SizeInBytes(has_nan_)));
  return stream.CopyToHost(BytesOf(logits_.data()), BytesOf(activations.logits), SizeInBytes(logits_));
}

absl::Status CudaResults::Logits(const weights::ModelSpec& spec,
                                 absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  MOE_RETURN_IF_ERROR(CheckScores(has_nan_));
  return FinishLogits(spec, rows_, wanted_, logits_.data(), on_logits);
}

}  // namespace moestro::engine
