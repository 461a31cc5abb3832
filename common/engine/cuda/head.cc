#include "common/engine/cuda/head.h"

#include <functional>

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
                           std::span<const int64_t> wanted, bool coded, uint16_t* input, cuda::Stream stream) {
  const int64_t hidden = spec.hidden_size, stride = CudaStride(hidden);
  for (size_t i = 0; i < wanted.size(); ++i) {
    uint16_t* const row = input + static_cast<int64_t>(i) * stride;
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRmsNorm({.x = residual + wanted[i] * hidden,
                                                          .x_stride = hidden,
                                                          .weight = final_norm,
                                                          .rows = 1,
                                                          .n = hidden,
                                                          .eps = static_cast<float>(spec.rms_norm_eps),
                                                          .out_bf16 = coded ? nullptr : row,
                                                          .out_bf16_stride = stride,
                                                          .subtract_mean = spec.layer_norms != 0,
                                                          .out_int8 = coded ? row : nullptr,
                                                          .out_int8_stride = stride},
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

namespace {

int64_t HeadInputBytes(const weights::ModelSpec& spec) {
  return model::kLogitRows * CudaStride(spec.hidden_size) * int64_t{sizeof(uint16_t)};
}
int64_t LogitBytes(const weights::ModelSpec& spec) {
  return model::kLogitRows * spec.vocab_size * int64_t{sizeof(float)};
}

}  // namespace

int64_t StepHead::Bytes(const weights::ModelSpec& spec) { return HeadInputBytes(spec) + LogitBytes(spec); }

absl::StatusOr<StepHead> StepHead::Create(device::Device& device, const weights::ModelSpec& spec) {
  MOE_ASSIGN_OR_RETURN(device::Memory input, device.Allocate(HeadInputBytes(spec), "activations"));
  MOE_ASSIGN_OR_RETURN(device::Memory logits, device.Allocate(LogitBytes(spec), "logits"));
  MOE_ASSIGN_OR_RETURN(auto host_logits,
                       device::PinnedBuffer<float>::Create(device, model::kLogitRows * spec.vocab_size));
  return StepHead(std::move(input), std::move(logits), std::move(host_logits));
}

absl::Status StepHead::Logits(const weights::ModelSpec& spec, const model::ModelWeights& weights, bool coded,
                              const float* residual, std::span<const model::EngineRow> rows,
                              std::span<const int64_t> places, device::Stream& stream,
                              absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) const {
  auto* const input = reinterpret_cast<uint16_t*>(input_.data());
  auto* const logits = reinterpret_cast<float*>(logits_.data());
  std::vector<int64_t> at;
  return model::ForRowsWithLogits(rows, [&](std::span<const int64_t> wanted) -> absl::Status {
    at.clear();
    for (const int64_t row : wanted) at.push_back(places.empty() ? row : places[static_cast<size_t>(row)]);
    const auto run = [&](void* native) -> absl::Status {
      auto* const on = static_cast<cuda::Stream>(native);
      const CudaInputRows in{input, CudaStride(spec.hidden_size), coded && weights.head.dtype == DType::kI8};
      MOE_RETURN_IF_ERROR(NormHeadInput(spec, weights.final_norm, residual, at, in.coded, input, on));
      return RunHead(spec, {weights.head, 0}, std::ssize(at), in, logits, on);
    };
    // A GPU calls what is launched at once.
    MOE_RETURN_IF_ERROR(stream.Launch({.name = "head", .cost = {}, .run = std::ref(run)}));
    MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(host_logits_.get()), logits_.data(),
                                          std::ssize(at) * spec.vocab_size * int64_t{sizeof(float)}));
    MOE_RETURN_IF_ERROR(stream.Synchronize());
    return FinishLogits(spec, rows, wanted, host_logits_.get(), on_logits);
  });
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
  const bool coded = rows.coded() && slice.weights.dtype == DType::kI8;
  if (final_norm != nullptr) {
    MOE_RETURN_IF_ERROR(NormHeadInput(rows.spec, final_norm, rows.residual, wanted_, coded, a.head_input, stream));
  }
  const CudaInputRows in{a.head_input, CudaStride(rows.spec.hidden_size), coded};
  return RunHead(rows.spec, slice, std::ssize(wanted_), in, a.logits, stream);
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
