#include "loadtest/bench/measure/random_layer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/platform/process_memory.h"
#include "loadtest/bench/measure/linear_walk.h"

namespace moestro::bench {
namespace {

weights::ModelSpec LayerSpec(const MoeSizes& sizes, int64_t experts) {
  weights::ModelSpec spec;
  spec.hidden_size = sizes.hidden;
  spec.moe_intermediate_size = sizes.width;
  spec.num_experts = experts;
  spec.experts_per_token = sizes.experts_per_token;
  spec.num_shared_experts = 1;
  spec.num_layers = 1;
  return spec;
}

int64_t MaxRows(const MoeSizes& sizes) {
  int64_t rows = 1;
  for (const auto* passes : {&sizes.decode, &sizes.prefill}) {
    for (const TokenTarget& tokens : *passes) rows = std::max(rows, tokens.tokens);
  }
  return rows;
}

Shape GateShape(const MoeSizes& sizes) { return {sizes.width, sizes.hidden}; }
Shape DownShape(const MoeSizes& sizes) { return {sizes.hidden, sizes.width}; }

// Of gate and up matrices, then the down matrix, expert by expert.
std::vector<int32_t> CompensationOfExperts(BenchContext& context, const MoeSizes& sizes, const HugeBuffer& buffer,
                                           int64_t expert_bytes) {
  std::vector<int32_t> all;
  const int64_t gate_groups = 2 * sizes.width / kRowGroup, down_groups = sizes.hidden / kRowGroup;
  for (const uint8_t* data = buffer.data(); data < buffer.data() + buffer.size(); data += expert_bytes) {
    for (const auto& part : {CompensationOf(context.pool, data, gate_groups, sizes.hidden),
                             CompensationOf(context.pool, data + expert_bytes / 3 * 2, down_groups, sizes.width)}) {
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RandomLayer>> RandomLayer::Create(BenchContext& context, const MoeSizes& sizes,
                                                                 DType dtype) {
  // As exceptions and compensations require; a byte is a weight.
  MOE_CHECK(sizes.hidden % kScaleBlock == 0 && sizes.width % kScaleBlock == 0 && DTypeBytes(dtype) == 1);
  const int64_t expert_bytes = 3 * PackedBytes(dtype, sizes.width, sizes.hidden);
  MOE_ASSIGN_OR_RETURN(const AvailableMemory available, ReadAvailableMemory());
  // The one is for the shared expert.
  const int64_t experts = std::min(sizes.experts, available.bytes / 2 / expert_bytes - 1);
  if (experts < sizes.experts_per_token) {
    return absl::ResourceExhaustedError(absl::StrFormat("half of the available memory holds %d experts", experts));
  }
  MOE_ASSIGN_OR_RETURN(HugeBuffer buffer, HugeBuffer::Allocate((experts + 1) * expert_bytes));
  WeightPattern(dtype).Fill(context.pool, buffer.data(), buffer.size());
  return std::unique_ptr<RandomLayer>(new RandomLayer(context, sizes, dtype, std::move(buffer), experts));
}

RandomLayer::RandomLayer(BenchContext& context, const MoeSizes& sizes, DType dtype, HugeBuffer buffer, int64_t experts)
    : sizes_(sizes),
      dtype_(dtype),
      spec_(LayerSpec(sizes_, experts)),
      max_rows_(MaxRows(sizes_)),
      buffer_(std::move(buffer)),
      gate_scales_(ScalesOf(dtype, GateShape(sizes_))),
      down_scales_(ScalesOf(dtype, DownShape(sizes_))),
      choices_(max_rows_ * spec_.experts_per_token),
      context_{spec_, context.kernels, context.pool},
      rows_(spec_, max_rows_),
      buffers_(spec_, max_rows_, context.pool.threads(), model::DenseWidth(spec_)) {
  if (dtype == DType::kF8E4M3) exceptions_ = ExceptionsOf(context.pool, buffer_.data(), buffer_.size());
  if (dtype == DType::kI8) compensation_ = CompensationOfExperts(context, sizes_, buffer_, expert_bytes());
  for (int64_t expert = 0; expert < experts; ++expert) weights_.experts.push_back(Mlp(expert));
  weights_.dense = Mlp(experts);
  const std::vector<uint16_t> inputs = MakeInputs(max_rows_ * spec_.hidden_size);
  std::ranges::copy(inputs, rows_.View({}).x);
}

double RandomLayer::Run(int64_t rows, model::MoeSync sync) {
  Route(rows);
  model::RunMoe({context_, buffers_}, weights_, rows_.View({0, rows}),
                std::span(choices_).first(rows * spec_.experts_per_token), sync);
  return static_cast<double>((static_cast<int64_t>(active_.size()) + 1) * expert_bytes());
}

double RandomLayer::Operations(int64_t rows) const {
  return 2.0 * static_cast<double>(rows * (spec_.experts_per_token + 1) * expert_bytes());  // a byte is a weight
}

PackedMatrix RandomLayer::Matrix(const Shape& shape, const std::vector<float>& scales, const uint8_t* data) const {
  PackedMatrix matrix = {
      .dtype = dtype_, .rows = shape.rows, .cols = shape.cols, .data = data, .scales = scales.data()};
  if (!exceptions_.empty()) matrix.exceptions = exceptions_.data() + (data - buffer_.data()) / kPieceBytes;
  return matrix;
}

model::MlpWeights RandomLayer::Mlp(int64_t expert) const {
  const uint8_t* data = buffer_.data() + expert * expert_bytes();
  const int64_t bytes = expert_bytes() / 3;
  model::MlpWeights mlp = {.gate = Matrix(GateShape(sizes_), gate_scales_, data),
                           .up = Matrix(GateShape(sizes_), gate_scales_, data + bytes),
                           .down = Matrix(DownShape(sizes_), down_scales_, data + 2 * bytes)};
  if (!compensation_.empty()) {
    const int32_t* compensation = compensation_.data() + expert * (2 * sizes_.width + sizes_.hidden);
    mlp.gate.compensation = compensation;
    mlp.up.compensation = compensation + sizes_.width;
    mlp.down.compensation = compensation + 2 * sizes_.width;
  }
  return mlp;
}

void RandomLayer::Route(int64_t rows) {
  const int64_t per_token = spec_.experts_per_token;
  const float weight = 1.0f / static_cast<float>(per_token);
  active_.clear();
  for (int64_t row = 0; row < rows; ++row) {
    std::set<int32_t> chosen;
    while (static_cast<int64_t>(chosen.size()) < per_token) {
      chosen.insert(static_cast<int32_t>(random_[draws_++] % static_cast<uint64_t>(spec_.num_experts)));
    }
    auto* choice = &choices_[row * per_token];
    for (const int32_t expert : chosen) *choice++ = {expert, weight};
    active_.insert(chosen.begin(), chosen.end());
  }
}

}  // namespace moestro::bench
