// GEMM with weights from DRAM, all cores.
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "loadtest/bench/benchmark.h"
#include "loadtest/bench/measure/linear_walk.h"

namespace moestro::bench {
namespace {

// The least tasks in one run of the worker pool. At its end some workers wait for others; many tasks make that cheap.
constexpr int64_t kGemmTasksPerThread = 64;

// Of the rate of dot products, from this many tokens on: formats of blocks, whose codes take instructions beside.
constexpr int64_t kGemmTargetTokens = 128;
constexpr double kBlocksTarget = 0.85, kCodedTarget = 0.70;

std::optional<double> TargetFrom(int64_t tokens, double target) {
  return tokens >= kGemmTargetTokens ? std::optional(target) : std::nullopt;
}

std::optional<double> TargetOf(DType dtype, const TokenTarget& tokens) {
  if (IsBlockFormat(dtype)) return TargetFrom(tokens.tokens, kBlocksTarget);
  return dtype == DType::kF16 ? std::nullopt : std::optional(tokens.target);
}

absl::StatusOr<Findings> Measure(BenchContext& context, DType dtype, const Shape& shape, const TokenTarget& tokens) {
  const auto target = TargetOf(dtype, tokens);
  MOE_RETURN_IF_ERROR(context.weights.Prepare(dtype));
  LinearWalk walk(context, dtype, shape, tokens.tokens, WalkInputs::kBf16);
  const int64_t groups = PaddedRows(shape.rows) / kRowGroup;
  const int64_t matrices = CeilDiv(context.pool.threads() * kGemmTasksPerThread, groups);
  const double operations = 2.0 * static_cast<double>(matrices * shape.rows * shape.cols * tokens.tokens);
  int64_t next = 0;
  const Work walk_work = {.run = [&] {
    walk.Run(next, matrices);
    next += matrices;
    return operations;
  }};
  const Work works[] = {context.ceilings.Dot(), walk_work, context.ceilings.VectorDot()};
  const bool tiles = context.ceilings.has_tiles();
  const auto series = context.timer.Measure(std::span(works).first(tiles ? 3 : 2));
  Row row =
      MakeRow(WeightsName(dtype) + " " + shape.ToString() + ", " + std::to_string(tokens.tokens) + " tokens",
              context.pool.threads(), "GFLOP/s", series[1],
              "2 operations for each weight and token, " + std::to_string(matrices) + " matrices after one another");
  if (!tiles) {
    CompareRates(series[1], kDotRate, series[0], target, &row);
    return OneRow(std::move(row));
  }
  // The targets refer to vectors. The row for tiles shows the distance to their own rate.
  Findings findings;
  Row of_tiles = row;
  of_tiles.name += ", of what tiles could do";
  CompareRates(series[1], kVectorDotRate, series[2], target, &row);
  CompareRates(series[1], kDotRate, series[0], std::nullopt, &of_tiles);
  findings.rows = {std::move(row), std::move(of_tiles)};
  return findings;
}

// With coded inputs: compared with the dot products of bytes, where the CPU has them.
absl::StatusOr<Findings> MeasureCoded(BenchContext& context, DType dtype, const Shape& shape, int64_t tokens) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(dtype));
  LinearWalk walk(context, dtype, shape, tokens, WalkInputs::kCoded);
  const int64_t matrices = CeilDiv(context.pool.threads() * kGemmTasksPerThread, PaddedRows(shape.rows) / kRowGroup);
  const double operations = 2.0 * static_cast<double>(matrices * shape.rows * shape.cols * tokens);
  int64_t next = 0;
  const bool bytes = context.ceilings.has_byte_dots();
  const Work works[] = {bytes ? context.ceilings.ByteDot() : context.ceilings.VectorDot(), {.run = [&] {
                          walk.Run(next, matrices);
                          next += matrices;
                          return operations;
                        }}};
  const auto series = context.timer.Measure(works);
  Row row =
      MakeRow(WalkName(dtype, WalkInputs::kCoded) + " " + shape.ToString() + ", " + std::to_string(tokens) + " tokens",
              context.pool.threads(), "GFLOP/s", series[1],
              "2 operations for each weight and token, " + std::to_string(matrices) + " matrices after one another");
  CompareRates(series[1], bytes ? kByteDotRate : kVectorDotRate, series[0], TargetFrom(tokens, kCodedTarget), &row);
  return OneRow(std::move(row));
}

}  // namespace

void AddGemmBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks) {
  for (const DType dtype : kWeightTypes) {
    for (const TokenTarget& tokens : preset.gemm_tokens) {
      benchmarks.push_back(
          {"gemm", absl::AsciiStrToLower(WeightsName(dtype)) + "-" + std::to_string(tokens.tokens),
           [=, shape = preset.gemm](BenchContext& context) { return Measure(context, dtype, shape, tokens); }});
    }
  }
  for (const DType dtype : kWeightTypes) {
    if (CodingOf(dtype) != InputCoding::kSpans) continue;
    for (const TokenTarget& tokens : preset.gemm_tokens) {
      benchmarks.push_back({"gemm",
                            absl::AsciiStrToLower(WeightsName(dtype)) + "-coded-" + std::to_string(tokens.tokens),
                            [=, shape = preset.gemm, count = tokens.tokens](BenchContext& context) {
                              return MeasureCoded(context, dtype, shape, count);
                            }});
    }
  }
}

}  // namespace moestro::bench
