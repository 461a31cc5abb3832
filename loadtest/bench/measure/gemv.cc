// FP8 and BF16 GEMV with every weight from DRAM, all cores.
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "loadtest/bench/benchmark.h"
#include "loadtest/bench/measure/linear_walk.h"

namespace moestro::bench {
namespace {

constexpr double kTarget = 0.97;  // of read bandwidth

absl::StatusOr<Findings> Measure(BenchContext& context, DType dtype, const Shape& shape) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(dtype));
  LinearWalk walk(context, dtype, shape, /*tokens=*/1);
  const int64_t matrices = context.weights.Count(shape.rows, shape.cols);
  const int64_t bytes = matrices * PackedBytes(dtype, shape.rows, shape.cols);
  const Work works[] = {context.ceilings.Read(context.weights.data(), bytes), {.run = [&] {
                          walk.Run(0, matrices);
                          return static_cast<double>(bytes);
                        }}};
  const auto series = context.timer.Measure(works);
  const bool fp8 = dtype == DType::kF8E4M3;
  Row row = MakeRow((fp8 ? "FP8 " : "BF16 ") + shape.ToString(), context.pool.threads(), "GB/s", series[1],
                    "weights of " + std::to_string(matrices) +
                        " matrices, walked over once; scales, input and output "
                        "are not counted");
  CompareRates(series[1], kReadBandwidth, series[0], fp8 ? std::optional(kTarget) : std::nullopt, &row);
  return OneRow(std::move(row));
}

}  // namespace

void AddGemvBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks) {
  const auto add = [&](DType dtype, const std::string& prefix, const Shape& shape) {
    benchmarks.push_back({"gemv", prefix + "-" + shape.ToString(),
                          [=](BenchContext& context) { return Measure(context, dtype, shape); }});
  };
  for (const Shape& shape : preset.gemv) add(DType::kF8E4M3, "fp8", shape);
  for (const Shape& shape : preset.gemv) add(DType::kBF16, "bf16", shape);
}

}  // namespace moestro::bench
