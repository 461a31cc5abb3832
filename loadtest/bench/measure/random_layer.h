// One MoE layer of random experts, for measuring the engine's MoE phases on known experts.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/random_bits.h"
#include "common/model/moe/moe.h"
#include "loadtest/bench/benchmark.h"

namespace moestro::bench {

class RandomLayer {
 public:
  // As many of sizes.experts as half of the available memory holds, and a shared one, with weights of `dtype`: FP8 or
  // I8. RESOURCE_EXHAUSTED if they are fewer than a token takes. `context` must outlive the layer.
  static absl::StatusOr<std::unique_ptr<RandomLayer>> Create(BenchContext& context, const MoeSizes& sizes, DType dtype);

  // One pass of `rows` tokens, each routed to new random experts. Returns the bytes of the experts' weights, counting
  // shared experts once.
  double Run(int64_t rows, model::MoeSync sync);
  double Operations(int64_t rows) const;

  const HugeBuffer& buffer() const { return buffer_; }
  int64_t experts() const { return spec_.num_experts; }
  int64_t expert_bytes() const { return buffer_.size() / (experts() + 1); }

 private:
  RandomLayer(BenchContext& context, const MoeSizes& sizes, DType dtype, HugeBuffer buffer, int64_t experts);

  PackedMatrix Matrix(const Shape& shape, const std::vector<float>& scales, const uint8_t* data) const;
  model::MlpWeights Mlp(int64_t expert) const;
  // Every token takes experts_per_token distinct experts; each set is equally likely.
  void Route(int64_t rows);

  MoeSizes sizes_;
  DType dtype_;
  weights::ModelSpec spec_;
  int64_t max_rows_;
  HugeBuffer buffer_;
  std::vector<uint32_t> exceptions_;   // of FP8
  std::vector<int32_t> compensation_;  // of I8: of an expert's gate, up and down
  std::vector<float> gate_scales_;
  std::vector<float> down_scales_;
  std::vector<model::ExpertChoice> choices_;
  std::set<int32_t> active_;  // experts of the last routing
  RandomWords random_{3, "bench routing"};
  uint64_t draws_ = 0;
  model::FeedForwardWeights weights_;
  model::EngineContext context_;
  model::RowBuffers rows_;
  model::ExpertBuffers buffers_;
};

}  // namespace moestro::bench
