// Ablation: how E4M3 codes become BF16. All threads, each on codes and values that stay in its L1.
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/model/buffer.h"
#include "common/tensor/packed_matrix.h"
#include "loadtest/bench/baselines/fp8_convert.h"
#include "loadtest/bench/benchmark.h"

namespace moestro::bench {
namespace {

constexpr int64_t kRepeats = 256;  // of a task: about 2 MiB of codes

struct Way {
  std::string name;
  void (*convert)(const Fp8Codes& codes, uint16_t* out);
};
// The reference comes first. The article says that gathering is as slow as arithmetic, and that skipping halves the
// time.
const Way kWays[] = {
    {"arithmetic, every code", Fp8ByArithmetic},
    {"gather from a table of 256 (the article: 1)", Fp8ByGather},
    {"arithmetic that skips subnormals and NaN (the article: 2)", Fp8Skipping},
    {"byte tables, every code: this project, avx512_bf16", Fp8ByByteTables},
    {"products of bits, every code by exceptions: this project, amx", Fp8ByBitMatrices},
};

absl::StatusOr<Findings> Measure(BenchContext& context) {
  if (!context.has_fp8_conversions) {
    return absl::FailedPreconditionError("this CPU lacks AVX-512 with VBMI and GFNI");
  }
  struct Worker {
    model::Buffer<uint8_t> codes{kPieceBytes};
    model::Buffer<uint16_t> values{kPieceBytes};
    std::vector<uint32_t> exceptions;
  };
  std::vector<Worker> workers(context.pool.threads());
  const WeightPattern pattern(DType::kF8E4M3);
  for (Worker& worker : workers) {
    pattern.Fill(context.pool, worker.codes.get(), kPieceBytes);
    worker.exceptions = ExceptionsOf(context.pool, worker.codes.get(), kPieceBytes);
  }
  std::vector<Work> works;
  for (const Way& way : kWays) {
    works.push_back({.run = [&context, &workers, convert = way.convert] {
      context.pool.Run(std::ssize(workers), [&](int64_t, int index) {
        const Worker& worker = workers[index];
        const Fp8Codes codes = {worker.codes.get(), kPieceBytes, worker.exceptions.data()};
        for (int64_t i = 0; i < kRepeats; ++i) convert(codes, worker.values.get());
      });
      return static_cast<double>(std::ssize(workers) * kRepeats * kPieceBytes);
    }});
  }
  const auto series = context.timer.Measure(works);
  Findings findings;
  for (size_t i = 0; i < works.size(); ++i) {
    Row row = MakeRow(kWays[i].name, context.pool.threads(), "GB/s", series[i],
                      "codes of normally distributed weights, read from L1; their BF16 values, written to it, are not "
                      "counted");
    if (i > 0) CompareRates(series[i], kWays[0].name, series[0], std::nullopt, &row);
    findings.rows.push_back(std::move(row));
  }
  return findings;
}

}  // namespace

void AddFp8ConvertBenchmarks(const Preset&, std::vector<Benchmark>& benchmarks) {
  benchmarks.push_back({"fp8-convert", "from-cache", Measure});
}

}  // namespace moestro::bench
