#include "common/engine/cuda/inputs.h"

#include "common/base/status.h"

namespace moestro {

void CudaInputs::Begin(std::span<const EngineRow> rows) {
  rows_ = rows;
  const int64_t pairs = rope_.pairs();
  cosine_.resize(rows.size() * pairs);
  sine_.resize(rows.size() * pairs);
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    rope_.Angles(rows[row].position, &cosine_[row * pairs], &sine_[row * pairs]);
  }
}

absl::Status CudaInputs::Copy(IndexRange rows, const CudaActivations& activations, device::Stream& stream) const {
  const int64_t hidden = spec_.hidden_size, pairs = rope_.pairs();
  const auto copy_floats = [&](float* to, const float* from, int64_t count) {
    return stream.CopyToDevice(BytesOf(to), BytesOf(from), count * static_cast<int64_t>(sizeof(float)));
  };
  MOE_RETURN_IF_ERROR(copy_floats(activations.cosine, &cosine_[rows.begin * pairs], rows.size() * pairs));
  MOE_RETURN_IF_ERROR(copy_floats(activations.sine, &sine_[rows.begin * pairs], rows.size() * pairs));
  auto* const embeddings = reinterpret_cast<uint16_t*>(activations.sums);
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t token = rows_[rows.begin + i].token;
    MOE_RETURN_IF_ERROR(stream.CopyToDevice(BytesOf(embeddings + i * hidden),
                                            BytesOf(weights_.embedding + token * hidden),
                                            hidden * static_cast<int64_t>(sizeof(uint16_t))));
  }
  return absl::OkStatus();
}

}  // namespace moestro
