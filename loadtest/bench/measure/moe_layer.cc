// One MoE layer of DeepSeek-V3 on known experts, which takes most of the time of decode and prefill.
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/random_bits.h"
#include "common/base/status.h"
#include "common/model/moe/moe.h"
#include "common/platform/process_memory.h"
#include "loadtest/bench/benchmark.h"

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

class Layer {
 public:
  static absl::StatusOr<std::shared_ptr<Layer>> Create(BenchContext& context) {
    const MoeSizes& sizes = context.preset.moe;
    const int64_t expert_bytes = 3 * PackedBytes(DType::kF8E4M3, sizes.width, sizes.hidden);
    MOE_ASSIGN_OR_RETURN(const AvailableMemory available, ReadAvailableMemory());
    // The one is for the shared expert.
    const int64_t experts = std::min(sizes.experts, available.bytes / 2 / expert_bytes - 1);
    if (experts < sizes.experts_per_token) {
      return absl::ResourceExhaustedError(absl::StrFormat("half of the available memory holds %d experts", experts));
    }
    MOE_ASSIGN_OR_RETURN(HugeBuffer buffer, HugeBuffer::Allocate((experts + 1) * expert_bytes));
    WeightPattern(DType::kF8E4M3).Fill(context.pool, buffer.data(), buffer.size());
    return std::shared_ptr<Layer>(new Layer(context, std::move(buffer), experts));
  }

  // One pass of `rows` tokens, each routed to new random experts. Returns the bytes of the experts' weights, counting
  // shared experts once.
  double Run(int64_t rows, model::MoeSync sync) {
    Route(rows);
    model::RunMoe({context_, buffers_}, weights_, rows_.View({0, rows}),
                  std::span(choices_).first(rows * spec_.experts_per_token), sync);
    return static_cast<double>((static_cast<int64_t>(active_.size()) + 1) * expert_bytes());
  }

  double Operations(int64_t rows) const {
    return 2.0 * static_cast<double>(rows * (spec_.experts_per_token + 1) * expert_bytes());  // a byte is a weight
  }

  const HugeBuffer& buffer() const { return buffer_; }
  int64_t experts() const { return spec_.num_experts; }
  int64_t expert_bytes() const { return buffer_.size() / (experts() + 1); }

 private:
  Layer(BenchContext& context, HugeBuffer buffer, int64_t experts)
      : sizes_(context.preset.moe),
        spec_(LayerSpec(sizes_, experts)),
        max_rows_(MaxRows(sizes_)),
        buffer_(std::move(buffer)),
        exceptions_(ExceptionsOf(context.pool, buffer_.data(), buffer_.size())),
        gate_scales_(MakeScales(sizes_.width, sizes_.hidden, 1 / std::sqrt(static_cast<double>(sizes_.hidden)))),
        down_scales_(MakeScales(sizes_.hidden, sizes_.width, 1 / std::sqrt(static_cast<double>(sizes_.width)))),
        choices_(max_rows_ * spec_.experts_per_token),
        context_{spec_, context.kernels, context.pool},
        rows_(spec_, max_rows_),
        buffers_(spec_, max_rows_, context.pool.threads(), model::DenseWidth(spec_)) {
    MOE_CHECK(sizes_.hidden % kScaleBlock == 0 && sizes_.width % kScaleBlock == 0);  // as exceptions_ requires
    for (int64_t expert = 0; expert < experts; ++expert) weights_.experts.push_back(Mlp(expert));
    weights_.dense = Mlp(experts);
    const std::vector<uint16_t> inputs = MakeInputs(max_rows_ * spec_.hidden_size);
    std::ranges::copy(inputs, rows_.View({}).x);
  }

  static int64_t MaxRows(const MoeSizes& sizes) {
    int64_t rows = 1;
    for (const TokenTarget& tokens : sizes.decode) rows = std::max(rows, tokens.tokens);
    for (const int64_t tokens : sizes.prefill) rows = std::max(rows, tokens);
    return rows;
  }

  model::MlpWeights Mlp(int64_t expert) const {
    const uint8_t* data = buffer_.data() + expert * expert_bytes();
    const int64_t bytes = expert_bytes() / 3;
    const uint32_t* exceptions = exceptions_.data() + expert * expert_bytes() / kPieceBytes;
    const int64_t words = bytes / kPieceBytes;
    return {.gate = {DType::kF8E4M3, sizes_.width, sizes_.hidden, data, gate_scales_.data(), exceptions},
            .up = {DType::kF8E4M3, sizes_.width, sizes_.hidden, data + bytes, gate_scales_.data(), exceptions + words},
            .down = {DType::kF8E4M3, sizes_.hidden, sizes_.width, data + 2 * bytes, down_scales_.data(),
                     exceptions + 2 * words}};
  }

  // Every token takes experts_per_token distinct experts; each set is equally likely.
  void Route(int64_t rows) {
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

  const MoeSizes& sizes_;
  weights::ModelSpec spec_;
  int64_t max_rows_;
  HugeBuffer buffer_;
  std::vector<uint32_t> exceptions_;
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

// Created by the first benchmark that needs it, freed after the last.
class SharedLayer {
 public:
  absl::StatusOr<Layer*> Get(BenchContext& context) {
    if (layer_ == nullptr) {
      context.weights.Release();
      MOE_ASSIGN_OR_RETURN(layer_, Layer::Create(context));
    }
    return layer_.get();
  }

 private:
  std::shared_ptr<Layer> layer_;
};

absl::StatusOr<Findings> MeasureDecode(BenchContext& context, Layer& layer, const TokenTarget& tokens) {
  const int64_t window = std::min(layer.buffer().size(), context.preset.pool_bytes) / 256 * 256;
  const auto pass = [&](model::MoeSync sync) {
    return Work{.run = [&layer, rows = tokens.tokens, sync] { return layer.Run(rows, sync); }};
  };
  const Work works[] = {context.ceilings.Read(layer.buffer().data(), window), pass(model::MoeSync::kPerExpert),
                        pass(model::MoeSync::kGlobal)};
  const auto series = context.timer.Measure(works);
  const std::string batch = absl::StrFormat("batch %d", tokens.tokens);
  const std::string counted = absl::StrFormat(
      "weights of the chosen experts of %d, each once, and of the shared expert; waits are part of the "
      "time; scales, activations and routing are not counted",
      layer.experts());
  Findings findings;
  findings.rows.push_back(MakeRow(batch, context.pool.threads(), "GB/s", series[1], counted));
  CompareRates(series[1], kReadBandwidth, series[0], tokens.target > 0 ? std::optional(tokens.target) : std::nullopt,
               &findings.rows.back());
  findings.rows.push_back(MakeRow(batch + ", one wait for all experts instead of one for each", context.pool.threads(),
                                  "GB/s", series[2], counted));
  CompareRates(series[2], kReadBandwidth, series[0], std::nullopt, &findings.rows.back());
  return findings;
}

absl::StatusOr<Findings> MeasurePrefill(BenchContext& context, Layer& layer, int64_t tokens) {
  const Work works[] = {context.ceilings.Dot(), {.run = [&] {
                          layer.Run(tokens, model::MoeSync::kPerExpert);
                          return layer.Operations(tokens);
                        }}};
  const auto series = context.timer.Measure(works);
  const double per_expert =
      static_cast<double>(tokens * context.preset.moe.experts_per_token) / static_cast<double>(layer.experts());
  Row row = MakeRow(absl::StrFormat("prefill, %d tokens", tokens), context.pool.threads(), "GFLOP/s", series[1],
                    absl::StrFormat("2 operations for each token and weight of its experts and the shared one; %d "
                                    "experts, %.1f tokens each on average",
                                    layer.experts(), per_expert));
  CompareRates(series[1], kDotRate, series[0], std::nullopt, &row);
  return OneRow(std::move(row));
}

}  // namespace

void AddMoeLayerBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks) {
  const auto shared = std::make_shared<SharedLayer>();
  for (const TokenTarget& tokens : preset.moe.decode) {
    benchmarks.push_back({"moe-layer", absl::StrFormat("decode-%d", tokens.tokens),
                          [shared, tokens](BenchContext& context) -> absl::StatusOr<Findings> {
                            MOE_ASSIGN_OR_RETURN(Layer* const layer, shared->Get(context));
                            return MeasureDecode(context, *layer, tokens);
                          }});
  }
  for (const int64_t tokens : preset.moe.prefill) {
    benchmarks.push_back({"moe-layer", absl::StrFormat("prefill-%d", tokens),
                          [shared, tokens](BenchContext& context) -> absl::StatusOr<Findings> {
                            MOE_ASSIGN_OR_RETURN(Layer* const layer, shared->Get(context));
                            return MeasurePrefill(context, *layer, tokens);
                          }});
  }
}

}  // namespace moestro::bench
