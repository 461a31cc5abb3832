// Ablation: INT8 weights with INT8 activations (W8A8) beside FP8 and BF16 weights with BF16 activations.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "loadtest/bench/benchmark.h"
#include "loadtest/bench/measure/linear_walk.h"
#include "loadtest/bench/measure/random_layer.h"

namespace moestro::bench {
namespace {

constexpr double kGemvTarget = 0.93;  // of read bandwidth
constexpr double kGemmTarget = 0.88;  // of the rate of dot products of bytes, from kTargetTokens on
constexpr int64_t kTargetTokens = 128;
constexpr double kLayerTarget = 0.85;  // of read bandwidth: the article's share in INT8 MoE
constexpr char kInt8[] = "INT8";
constexpr DType kTypes[] = {DType::kI8, DType::kF8E4M3, DType::kBF16};
constexpr int64_t kMostExperts = 64;     // two layers of them must fit; far more than caches hold
constexpr int64_t kTasksPerThread = 64;  // of a run of the pool: its end, where workers wait, must not count

std::string NameOf(DType dtype) { return dtype == DType::kI8 ? kInt8 : WeightsName(dtype); }

// What the article says of FP8 beside INT8.
const char* ArticleOf(DType dtype) { return dtype == DType::kF8E4M3 ? " (the article: 0.80 to 0.90)" : ""; }

struct TypedWalk {
  std::unique_ptr<WeightPool> weights;
  std::unique_ptr<LinearWalk> walk;
  int64_t matrices = 0;
  int64_t next = 0;
};

// Weights of each of kTypes in memory of their own, as many bytes of each.
absl::StatusOr<std::vector<TypedWalk>> Walks(BenchContext& context, const Shape& shape, int64_t tokens) {
  context.weights.Release();
  std::vector<TypedWalk> walks;
  for (const DType dtype : kTypes) {
    TypedWalk& walk = walks.emplace_back();
    walk.weights = std::make_unique<WeightPool>(context.pool, context.preset.pool_bytes);
    MOE_RETURN_IF_ERROR(walk.weights->Prepare(dtype));
    // As in the engine: every task codes a lone token, many tokens are coded once for all tasks.
    const WalkInputs inputs = dtype == DType::kI8 && tokens > 1 ? WalkInputs::kCoded : WalkInputs::kBf16;
    walk.walk = std::make_unique<LinearWalk>(context, *walk.weights, dtype, shape, tokens, inputs);
    walk.matrices = walk.weights->Count(shape.rows, shape.cols);
  }
  return walks;
}

absl::StatusOr<Findings> MeasureLinear(BenchContext& context, const Shape& shape, int64_t tokens) {
  MOE_ASSIGN_OR_RETURN(std::vector<TypedWalk> walks, Walks(context, shape, tokens));
  // One token takes whole walks, which are bound by reading; many tokens take as many matrices as keep workers busy.
  const int64_t groups = PaddedRows(shape.rows) / kRowGroup;
  const int64_t busy = CeilDiv(context.pool.threads() * kTasksPerThread, groups);
  const int64_t matrices = tokens == 1 ? walks.back().matrices : busy;  // BF16 has the fewest
  const double elements = static_cast<double>(matrices * shape.rows * shape.cols);
  std::vector<Work> works;
  const int64_t read_bytes = matrices * PackedBytes(DType::kI8, shape.rows, shape.cols);
  const bool bytes = context.ceilings.has_byte_dots();
  works.push_back(tokens == 1 ? context.ceilings.Read(walks[0].weights->data(), read_bytes)
                  : bytes     ? context.ceilings.ByteDot()
                              : context.ceilings.Dot());
  for (size_t i = 0; i < walks.size(); ++i) {
    const double amount = tokens == 1 ? elements * static_cast<double>(DTypeBytes(kTypes[i]))
                                      : 2 * elements * static_cast<double>(tokens);
    works.push_back({.run = [&walk = walks[i], matrices, amount] {
      walk.walk->Run(walk.next, matrices);
      walk.next = (walk.next + matrices) % walk.matrices;
      return amount;
    }});
  }
  const auto series = context.timer.Measure(works);
  const std::string what = absl::StrFormat("%s, %d token%s", shape.ToString(), tokens, tokens == 1 ? "" : "s");
  const char* unit = tokens == 1 ? "GB/s" : "GFLOP/s";
  const std::string counted = absl::StrFormat("%s of %d matrices after one another",
                                              tokens == 1 ? "weights" : "2 operations per weight and token", matrices);
  Findings findings;
  Row of_ceiling = MakeRow(NameOf(DType::kI8) + " " + what, context.pool.threads(), unit, series[1], counted);
  if (tokens == 1) {
    CompareRates(series[1], kReadBandwidth, series[0], kGemvTarget, &of_ceiling);
  } else {
    const bool judged = bytes && tokens >= kTargetTokens;
    CompareRates(series[1], bytes ? kByteDotRate : kDotRate, series[0],
                 judged ? std::optional(kGemmTarget) : std::nullopt, &of_ceiling);
  }
  findings.rows.push_back(std::move(of_ceiling));
  for (size_t i = 1; i < walks.size(); ++i) {
    Row row = MakeRow(NameOf(kTypes[i]) + " " + what + ArticleOf(kTypes[i]), context.pool.threads(), unit,
                      series[i + 1], counted);
    CompareSpeeds(series[i + 1], kInt8, series[1], std::nullopt, &row);
    findings.rows.push_back(std::move(row));
  }
  return findings;
}

absl::StatusOr<Findings> MeasureLayer(BenchContext& context, int64_t tokens) {
  context.weights.Release();
  MoeSizes sizes = context.preset.moe;
  sizes.experts = std::min(sizes.experts, kMostExperts);
  sizes.decode = {{tokens, 0}};
  sizes.prefill = {};
  MOE_ASSIGN_OR_RETURN(const auto int8, RandomLayer::Create(context, sizes, DType::kI8));
  MOE_ASSIGN_OR_RETURN(const auto fp8, RandomLayer::Create(context, sizes, DType::kF8E4M3));
  const auto pass = [&](RandomLayer& layer) {
    return Work{.run = [&layer, tokens] { return layer.Run(tokens, model::MoeSync::kPerExpert); }};
  };
  const int64_t window = std::min(int8->buffer().size(), context.preset.pool_bytes) / 256 * 256;
  const Work works[] = {context.ceilings.Read(int8->buffer().data(), window), pass(*int8), pass(*fp8)};
  const auto series = context.timer.Measure(works);
  const std::string batch = absl::StrFormat("MoE layer, batch %d", tokens);
  const std::string counted = absl::StrFormat(
      "weights of the chosen experts of %d, each once, and of the shared expert; waits are part of the time",
      int8->experts());
  Findings findings;
  Row of_ceiling = MakeRow("INT8 " + batch + " (the article: 0.85 of the data sheet's bandwidth)",
                           context.pool.threads(), "GB/s", series[1], counted);
  CompareRates(series[1], kReadBandwidth, series[0], kLayerTarget, &of_ceiling);
  findings.rows.push_back(std::move(of_ceiling));
  Row row = MakeRow("FP8 " + batch + ArticleOf(DType::kF8E4M3), context.pool.threads(), "GB/s", series[2], counted);
  CompareRates(series[2], kInt8, series[1], std::nullopt, &row);
  findings.rows.push_back(std::move(row));
  return findings;
}

}  // namespace

void AddInt8Benchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks) {
  benchmarks.push_back({"int8", "gemv", [shape = preset.gemv.front()](BenchContext& context) {
                          return MeasureLinear(context, shape, 1);
                        }});
  for (const TokenTarget& tokens : preset.gemm_tokens) {
    benchmarks.push_back({"int8", absl::StrFormat("gemm-%d", tokens.tokens),
                          [shape = preset.gemm, count = tokens.tokens](BenchContext& context) {
                            return MeasureLinear(context, shape, count);
                          }});
  }
  benchmarks.push_back({"int8", "moe-layer", [](BenchContext& context) { return MeasureLayer(context, 1); }});
}

}  // namespace moestro::bench
