#include "common/engine/cuda/inputs.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/engine/decode_compute.h"
#include "common/model/context.h"

namespace moestro::engine {
namespace {

constexpr int64_t kAlignment = 64;

// The arrays one behind the other from `base` on, and the bytes that they take; pages last, for their number is known
// last.
StepArrays Arrange(const weights::ModelSpec& spec, int64_t rows, int64_t pages, uint8_t* base, int64_t* bytes) {
  StepArrays arrays;
  *bytes = 0;
  const auto take = [&]<typename T>(T*& array, int64_t count) {
    array = reinterpret_cast<T*>(base + *bytes);
    *bytes += RoundUp(count * static_cast<int64_t>(sizeof(T)), kAlignment);
  };
  const int64_t pairs = spec.rotated_dims() / 2;
  take(arrays.embeddings, rows * spec.hidden_size);
  take(arrays.cosine, rows * pairs);
  take(arrays.sine, rows * pairs);
  take(arrays.positions, rows);
  take(arrays.first_page, rows);
  take(arrays.has_nan, spec.num_layers);
  take(arrays.pages, pages);
  return arrays;
}

}  // namespace

void CudaInputs::Begin(std::span<const model::EngineRow> rows, const device::Device& device) {
  rows_ = rows;
  gathers_ = has_bf16() && device.KernelsRead(weights_.embedding.data, spec_.vocab_size * spec_.hidden_size *
                                                                           static_cast<int64_t>(sizeof(uint16_t)));
  tokens_.clear();
  if (gathers_) std::ranges::transform(rows, std::back_inserter(tokens_), &model::EngineRow::token);
  const int64_t pairs = rope_.pairs();
  cosine_.resize(rows.size() * pairs);
  sine_.resize(rows.size() * pairs);
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    rope_.Angles(rows[row].position, &cosine_[row * pairs], &sine_[row * pairs]);
  }
  if (has_bf16()) return;
  row_of_token_.clear();
  for (const model::EngineRow& row : rows) row_of_token_.try_emplace(row.token, std::ssize(row_of_token_));
  embeddings_.resize(row_of_token_.size() * spec_.hidden_size);
  for (const auto& [token, row] : row_of_token_) {
    model::EmbedRow(weights_.embedding, token, spec_.hidden_size, &embeddings_[row * spec_.hidden_size]);
  }
}

absl::Status CudaInputs::Copy(IndexRange rows, const CudaActivations& activations, device::Stream& stream) const {
  const int64_t hidden = spec_.hidden_size, pairs = rope_.pairs();
  const auto copy = [&]<typename T>(T* to, const T* from, int64_t count) {
    return stream.CopyToDevice(BytesOf(to), BytesOf(from), count * static_cast<int64_t>(sizeof(T)));
  };
  MOE_RETURN_IF_ERROR(copy(activations.cosine, &cosine_[rows.begin * pairs], rows.size() * pairs));
  MOE_RETURN_IF_ERROR(copy(activations.sine, &sine_[rows.begin * pairs], rows.size() * pairs));
  if (gathers_) return copy(activations.tokens, &tokens_[rows.begin], rows.size());
  auto* const embeddings = reinterpret_cast<uint16_t*>(activations.sums);
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int32_t token = rows_[rows.begin + i].token;
    if (!has_bf16()) {
      MOE_RETURN_IF_ERROR(copy(activations.sums + i * hidden, &embeddings_[row_of_token_.at(token) * hidden], hidden));
      continue;
    }
    MOE_RETURN_IF_ERROR(copy(embeddings + i * hidden, weights_.embedding.Bf16Row(token, hidden), hidden));
  }
  return absl::OkStatus();
}

absl::Status CudaInputs::Embed(const CudaRows& rows, cuda::Stream stream) const {
  const CudaActivations& a = rows.activations;
  if (gathers_) return engine::Embed(rows, weights_.embedding.Bf16Row(0, spec_.hidden_size), a.tokens, stream);
  if (!has_bf16()) return engine::Embed(rows, a.sums, nullptr, stream);
  return engine::Embed(rows, reinterpret_cast<const uint16_t*>(a.sums), nullptr, stream);
}

absl::StatusOr<StepRows> StepRows::Create(device::Device& device, const weights::ModelSpec& spec,
                                          const Limits& limits) {
  int64_t bytes = 0;
  Arrange(spec, limits.rows, limits.pages, nullptr, &bytes);
  MOE_ASSIGN_OR_RETURN(auto host, device::PinnedBuffer<uint8_t>::Create(device, bytes));
  MOE_ASSIGN_OR_RETURN(device::Memory memory, device.Allocate(bytes, "rows of a step"));
  return StepRows(limits, std::move(host), std::move(memory));
}

absl::Status StepRows::Upload(const weights::ModelSpec& spec, const model::Rope& rope,
                              const model::Embedding& embedding, const model::CheckedBatch& batch,
                              std::span<const uint32_t> places, device::Stream& stream) {
  const int64_t pages = std::ssize(places);
  if (pages > limits_.pages) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("the step's sequences have %d pages, at most %d are foreseen", pages, limits_.pages));
  }
  int64_t bytes = 0;
  const StepArrays host = Arrange(spec, batch.size(), pages, host_memory_.get(), &bytes);
  device_ = Arrange(spec, batch.size(), pages, device_memory_.data(), &bytes);
  std::fill_n(host.has_nan, spec.num_layers, 0);
  int32_t next_page = 0;
  for (const model::SequenceRun& run : batch.runs) {
    for (int64_t row = run.begin; row < run.end; ++row) {
      const model::EngineRow& engine_row = batch.rows[row];
      model::EmbedRow(embedding, engine_row.token, spec.hidden_size, host.embeddings + row * spec.hidden_size);
      rope.Angles(engine_row.position, host.cosine + row * rope.pairs(), host.sine + row * rope.pairs());
      host.positions[row] = engine_row.position;
      host.first_page[row] = next_page;
    }
    next_page += static_cast<int32_t>(VisiblePages(batch, run));
  }
  std::ranges::copy(places, host.pages);
  return stream.CopyToDevice(device_memory_.data(), host_memory_.get(), bytes);
}

}  // namespace moestro::engine
