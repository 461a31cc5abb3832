#include "loadtest/bench/ceilings.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "common/base/math.h"
#include "common/base/status.h"
#include "loadtest/bench/benchmark.h"

namespace moestro::bench {
namespace {

// The piece that a worker takes. Large enough to make the switch to another address negligible.
constexpr int64_t kChunkBytes = int64_t{1} << 20;
// Chains of one task: some 100 microseconds, so that workers end almost together.
constexpr int64_t kDotRounds = 10000;
constexpr int64_t kDotTasksPerThread = 64;

// The result of every read goes here, so that the compiler cannot remove the reads.
std::atomic<uint64_t> sink{0};

}  // namespace

Work Ceilings::Read(const uint8_t* data, int64_t bytes) const {
  return {.run = [this, data, bytes] {
    pool_.Run(CeilDiv(bytes, kChunkBytes), [&](int64_t chunk, int) {
      const int64_t begin = chunk * kChunkBytes;
      const uint64_t value = probes_.read(data + begin, std::min(kChunkBytes, bytes - begin), read_ahead_);
      sink.fetch_xor(value, std::memory_order_relaxed);
    });
    return static_cast<double>(bytes);
  }};
}

Work Ceilings::Copy(uint8_t* to, const uint8_t* from, int64_t bytes) const {
  return {.run = [this, to, from, bytes] {
    pool_.Run(CeilDiv(bytes, kChunkBytes), [&](int64_t chunk, int) {
      const int64_t begin = chunk * kChunkBytes;
      probes_.copy(to + begin, from + begin, std::min(kChunkBytes, bytes - begin));
    });
    return 2.0 * static_cast<double>(bytes);
  }};
}

Work Ceilings::Dot(const Probes& probes) const {
  return {.run = [this, &probes] {
    const int64_t tasks = pool_.threads() * kDotTasksPerThread;
    pool_.Run(tasks, [&](int64_t, int) { probes.dot(kDotRounds); });
    return probes.dot_operations * static_cast<double>(kDotRounds * tasks);
  }};
}

void Ceilings::Calibrate(const RoundTimer& timer, const uint8_t* data, int64_t bytes) {
  // L1 alone is enough for some CPUs. Others have too few buffers for lines on their way to L1.
  constexpr ReadAhead kCandidates[] = {{},
                                       {.l1 = 1024},
                                       {.l1 = 2048},
                                       {.l1 = 4096},
                                       {.l1 = 8192},
                                       {.l1 = 1024, .l2 = 4096},
                                       {.l2 = 4096},
                                       {.l1 = 2048, .l2 = 4096},
                                       {.l1 = 2048, .l2 = 8192}};
  std::vector<Ceilings> candidates(std::size(kCandidates), *this);
  std::vector<Work> works;
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].read_ahead_ = kCandidates[i];
    works.push_back(candidates[i].Read(data, bytes));
  }
  const std::vector<Series> series = timer.Measure(works);
  const auto best = std::ranges::max_element(series, {}, [](const Series& s) { return AmountPerSecond(s).median; });
  read_ahead_ = kCandidates[best - series.begin()];
}

static absl::StatusOr<Findings> MeasureDots(BenchContext& context) {
  const Ceilings& ceilings = context.ceilings;
  const Work works[] = {ceilings.Dot(), ceilings.VectorDot()};
  const auto row = [&](const Probes& probes, const Series& series, const char* counted) {
    return MakeRow(std::string("dot product, ") + probes.dot_instruction, context.pool.threads(), "GFLOP/s", series,
                   counted);
  };
  constexpr char kVectors[] = "multiplications and additions in registers, two for each multiply-add";
  if (!ceilings.has_tiles()) {
    const auto series = context.timer.Measure(std::span(works).first(1));
    return OneRow(row(ceilings.probes(), series[0], kVectors));
  }
  const auto series = context.timer.Measure(works);
  Findings findings = OneRow(row(ceilings.probes(), series[0], "the same, of tiles that are loaded from L1"));
  findings.rows.push_back(row(ceilings.vectors(), series[1], kVectors));
  return findings;
}

void AddCeilingBenchmarks(const Preset&, std::vector<Benchmark>& benchmarks) {
  benchmarks.push_back({"ceilings", "read", [](BenchContext& context) -> absl::StatusOr<Findings> {
                          MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kF8E4M3));
                          const Work work[] = {context.ceilings.Read(context.weights.data(), context.weights.size())};
                          const auto series = context.timer.Measure(work);
                          return OneRow(MakeRow("DRAM read", context.pool.threads(), "GB/s", series[0],
                                                "bytes read, each once, from a buffer larger than all caches"));
                        }});
  benchmarks.push_back({"ceilings", "dot", MeasureDots});
  benchmarks.push_back({"ceilings", "copy", [](BenchContext& context) -> absl::StatusOr<Findings> {
                          const int64_t half = context.weights.size() / 2 / 256 * 256;
                          MOE_ASSIGN_OR_RETURN(const HugeBuffer to, HugeBuffer::Allocate(half));
                          MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kF8E4M3));
                          const Work work[] = {context.ceilings.Copy(to.data(), context.weights.data(), half)};
                          const auto series = context.timer.Measure(work);
                          return OneRow(MakeRow("DRAM copy", context.pool.threads(), "GB/s", series[0],
                                                "bytes read plus bytes written, stores past the caches"));
                        }});
}

}  // namespace moestro::bench
