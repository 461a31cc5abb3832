// One MoE layer of DeepSeek-V3 on known experts, which takes most of the time of decode and prefill.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "loadtest/bench/benchmark.h"
#include "loadtest/bench/measure/random_layer.h"

namespace moestro::bench {
namespace {

// Created by the first benchmark that needs it, freed after the last.
class SharedLayer {
 public:
  absl::StatusOr<RandomLayer*> Get(BenchContext& context) {
    if (layer_ == nullptr) {
      context.weights.Release();
      MOE_ASSIGN_OR_RETURN(layer_, RandomLayer::Create(context, context.preset.moe, DType::kF8E4M3));
    }
    return layer_.get();
  }

 private:
  std::unique_ptr<RandomLayer> layer_;
};

absl::StatusOr<Findings> MeasureDecode(BenchContext& context, RandomLayer& layer, const TokenTarget& tokens) {
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

absl::StatusOr<Findings> MeasurePrefill(BenchContext& context, RandomLayer& layer, const TokenTarget& tokens) {
  const int64_t window = std::min(layer.buffer().size(), context.preset.pool_bytes) / 256 * 256;
  double bytes = 0, passes = 0;
  const Work works[] = {context.ceilings.Read(layer.buffer().data(), window), context.ceilings.Dot(), {.run = [&] {
                          bytes += layer.Run(tokens.tokens, model::MoeSync::kPerExpert);
                          ++passes;
                          return layer.Operations(tokens.tokens);
                        }}};
  const auto series = context.timer.Measure(works);
  const double per_expert =
      static_cast<double>(tokens.tokens * context.preset.moe.experts_per_token) / static_cast<double>(layer.experts());
  Row row = MakeRow(absl::StrFormat("prefill, %d tokens", tokens.tokens), context.pool.threads(), "GFLOP/s", series[2],
                    absl::StrFormat("2 operations for each token and weight of its experts and the shared one; %d "
                                    "experts, %.1f tokens each on average",
                                    layer.experts(), per_expert));
  CompareRoofline(series[2], bytes / passes, series[0], series[1],
                  tokens.target > 0 ? std::optional(tokens.target) : std::nullopt, &row);
  return OneRow(std::move(row));
}

}  // namespace

void AddMoeLayerBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks) {
  const auto shared = std::make_shared<SharedLayer>();
  for (const TokenTarget& tokens : preset.moe.decode) {
    benchmarks.push_back({"moe-layer", absl::StrFormat("decode-%d", tokens.tokens),
                          [shared, tokens](BenchContext& context) -> absl::StatusOr<Findings> {
                            MOE_ASSIGN_OR_RETURN(RandomLayer* const layer, shared->Get(context));
                            return MeasureDecode(context, *layer, tokens);
                          }});
  }
  for (const TokenTarget& tokens : preset.moe.prefill) {
    benchmarks.push_back({"moe-layer", absl::StrFormat("prefill-%d", tokens.tokens),
                          [shared, tokens](BenchContext& context) -> absl::StatusOr<Findings> {
                            MOE_ASSIGN_OR_RETURN(RandomLayer* const layer, shared->Get(context));
                            return MeasurePrefill(context, *layer, tokens);
                          }});
  }
}

}  // namespace moestro::bench
