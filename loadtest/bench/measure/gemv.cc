// GEMV with every weight from DRAM, all cores: FP8, BF16, and in one shape all other types.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/base/status.h"
#include "loadtest/bench/benchmark.h"
#include "loadtest/bench/measure/linear_walk.h"

namespace moestro::bench {
namespace {

// Of read bandwidth. Codes of six bits take the most instructions a byte.
constexpr std::optional<double> TargetOf(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3:
      return 0.97;
    case DType::kQ6K:
      return 0.90;
    case DType::kQ8_0:
    case DType::kQ4K:
    case DType::kI4G32:
    case DType::kI4G128:
    case DType::kI4Z32:
    case DType::kI4Z128:
    case DType::kMXFP4:
      return 0.93;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<Findings> Measure(BenchContext& context, DType dtype, const Shape& shape, WalkInputs inputs) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(dtype));
  LinearWalk walk(context, dtype, shape, /*tokens=*/1, inputs);
  const int64_t matrices = context.weights.Count(shape.rows, shape.cols);
  const int64_t bytes = matrices * PackedBytes(dtype, shape.rows, shape.cols);
  const Work works[] = {context.ceilings.Read(context.weights.data(), bytes), {.run = [&] {
                          walk.Run(0, matrices);
                          return static_cast<double>(bytes);
                        }}};
  const auto series = context.timer.Measure(works);
  Row row = MakeRow(
      WalkName(dtype, inputs) + " " + shape.ToString(), context.pool.threads(), "GB/s", series[1],
      "weights of " + std::to_string(matrices) + " matrices, walked over once; " +
          (IsBlockFormat(dtype) ? "input and output are not counted" : "scales, input and output are not counted"));
  CompareRates(series[1], kReadBandwidth, series[0], TargetOf(dtype), &row);
  return OneRow(std::move(row));
}

}  // namespace

void AddGemvBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks) {
  for (const DType dtype : kWeightTypes) {
    const bool all_shapes = dtype == DType::kF8E4M3 || dtype == DType::kBF16;
    for (const Shape& shape : preset.gemv) {
      benchmarks.push_back({"gemv", absl::AsciiStrToLower(WeightsName(dtype)) + "-" + shape.ToString(),
                            [=](BenchContext& context) { return Measure(context, dtype, shape, WalkInputs::kBf16); }});
      if (!all_shapes) break;
    }
  }
  for (const DType dtype : kWeightTypes) {
    if (CodingOf(dtype) != InputCoding::kSpans) continue;
    const Shape shape = preset.gemv.front();
    benchmarks.push_back({"gemv", absl::AsciiStrToLower(WeightsName(dtype)) + "-coded-" + shape.ToString(),
                          [=](BenchContext& context) { return Measure(context, dtype, shape, WalkInputs::kCoded); }});
  }
}

}  // namespace moestro::bench
