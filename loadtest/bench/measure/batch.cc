// What a batch's decode does to one layer of Mixtral 8x7B, as in Fig. 9 of "MoE-Lightning": attention on the CPU beside
// a copy of the same keys and values over a bus, and the layer's experts.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/base/steady_seconds.h"
#include "loadtest/bench/benchmark.h"
#include "loadtest/bench/measure/decode_attention.h"
#include "loadtest/bench/measure/linear_walk.h"

namespace moestro::bench {
namespace {

constexpr int64_t kBatchHeads = 32;
constexpr int64_t kExperts = 8, kExpertsPerToken = 2, kMatrices = 3;
constexpr double kTarget = 0.7;          // of read bandwidth
constexpr double kLeastSeconds = 0.005;  // of attention that has the target: shorter ones wake threads for much of it
constexpr double kBusBytesPerSecond = 12e9;  // of the paper's L4

// Copies `bytes` of the pool to a buffer in cache, no faster than the bus would.
double PacedCopy(BenchContext& context, HugeBuffer& to, int64_t bytes) {
  const double begin = SteadySeconds();
  for (int64_t done = 0; done < bytes;) {
    const int64_t part = std::min(to.size(), bytes - done);
    context.ceilings.Copy(to.data(), context.weights.data() + done, part).run();
    done += part;
    while (SteadySeconds() - begin < static_cast<double>(done) / kBusBytesPerSecond) {
    }
  }
  return static_cast<double>(bytes);
}

absl::StatusOr<Findings> MeasureAttention(BenchContext& context, int64_t micro_batch, int64_t tokens) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  MOE_ASSIGN_OR_RETURN(HugeBuffer staging, HugeBuffer::Allocate(int64_t{1} << 20));
  GqaAttention attention(context, kBatchHeads, micro_batch, tokens);
  const Work works[] = {
      context.ceilings.Read(context.weights.data(), context.weights.size()),
      {.run = [&] { return PacedCopy(context, staging, attention.bytes()); }},
      {.run =
           [&] {
             attention.Run();
             return static_cast<double>(attention.bytes());
           }},
  };
  const auto series = context.timer.Measure(works);
  const std::string name = absl::StrFormat("attention of %d sequences to %d tokens", micro_batch, tokens);
  const std::string counted = "BF16 keys and values of all sequences, once";
  const int threads = context.pool.threads();
  Findings findings;
  Row row = MakeRow(name, threads, "GB/s", series[2], counted);
  const bool judged = row.microseconds.median >= kLeastSeconds * 1e6;
  CompareRates(series[2], kReadBandwidth, series[0], judged ? std::optional(kTarget) : std::nullopt, &row);
  findings.rows.push_back(std::move(row));
  Row copy = MakeRow(name + " instead of a copy", threads, "GB/s", series[2], counted);
  CompareSpeeds(series[2], "a copy of the same, paced to 12 GB/s", series[1], std::nullopt, &copy);
  findings.rows.push_back(std::move(copy));
  return findings;
}

absl::StatusOr<Findings> MeasureExperts(BenchContext& context, int64_t micro_batch) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  const Shape& shape = context.preset.batch.expert;
  const int64_t rows = std::max<int64_t>(1, micro_batch * kExpertsPerToken / kExperts);
  LinearWalk walk(context, DType::kBF16, shape, rows, WalkInputs::kBf16);
  const int64_t bytes = kExperts * kMatrices * PackedBytes(DType::kBF16, shape.rows, shape.cols);
  const Work works[] = {context.ceilings.Read(context.weights.data(), context.weights.size()), {.run = [&] {
                          walk.Run(0, kExperts * kMatrices);
                          return static_cast<double>(bytes);
                        }}};
  const auto series = context.timer.Measure(works);
  Row row = MakeRow(absl::StrFormat("experts of %d sequences", micro_batch), context.pool.threads(), "GB/s", series[1],
                    absl::StrFormat("BF16 weights of %d experts, once; products of %d rows with each", kExperts, rows));
  CompareRates(series[1], kReadBandwidth, series[0], std::nullopt, &row);
  return OneRow(std::move(row));
}

}  // namespace

void AddBatchBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks) {
  for (const int64_t micro_batch : preset.batch.micro_batches) {
    for (const int64_t tokens : preset.batch.contexts) {
      benchmarks.push_back({"lightning", absl::StrFormat("attention-%d-%d", micro_batch, tokens),
                            [=](BenchContext& context) { return MeasureAttention(context, micro_batch, tokens); }});
    }
    benchmarks.push_back({"lightning", absl::StrFormat("experts-%d", micro_batch),
                          [=](BenchContext& context) { return MeasureExperts(context, micro_batch); }});
  }
}

}  // namespace moestro::bench
