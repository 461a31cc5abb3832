#include "services/cli/bench/ceilings.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "common/base/math.h"
#include "common/base/status.h"
#include "services/cli/bench/benchmark.h"

namespace moestro::bench {
namespace {

// What a worker takes at a time. Large enough that the switch to another place costs nothing.
constexpr int64_t kChunkBytes = int64_t{1} << 20;
// Chains of one task: some 100 microseconds, so that the end of the run is not ragged.
constexpr int64_t kDotRounds = 10000;
constexpr int64_t kDotTasksPerThread = 64;

// Whatever is read ends up here, so that reading cannot be optimised away.
std::atomic<uint64_t> sink{0};

}  // namespace

Work Ceilings::Read(const uint8_t* data, int64_t bytes) const {
  return {.run = [this, data, bytes] {
    pool_.Run(CeilDiv(bytes, kChunkBytes), [&](int64_t chunk, int) {
      const int64_t begin = chunk * kChunkBytes;
      const uint64_t value = probes_.read(data + begin, std::min(kChunkBytes, bytes - begin), prefetch_bytes_);
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

Work Ceilings::Dot() const {
  return {.run = [this] {
    const int64_t tasks = pool_.threads() * kDotTasksPerThread;
    pool_.Run(tasks, [&](int64_t, int) { probes_.dot(kDotRounds); });
    return probes_.dot_operations * static_cast<double>(kDotRounds * tasks);
  }};
}

void Ceilings::Calibrate(const RoundTimer& timer, const uint8_t* data, int64_t bytes) {
  constexpr std::array<int64_t, 5> kDistances = {0, 1024, 2048, 4096, 8192};
  std::array<Ceilings, kDistances.size()> candidates = {*this, *this, *this, *this, *this};
  std::vector<Work> works;
  for (size_t i = 0; i < kDistances.size(); ++i) {
    candidates[i].prefetch_bytes_ = kDistances[i];
    works.push_back(candidates[i].Read(data, bytes));
  }
  const std::vector<Series> series = timer.Measure(works);
  const auto best = std::ranges::max_element(series, {}, [](const Series& s) { return AmountPerSecond(s).median; });
  prefetch_bytes_ = kDistances[best - series.begin()];
}

void AddCeilingBenchmarks(const Preset&, std::vector<Benchmark>& benchmarks) {
  benchmarks.push_back({"ceilings", "read", [](BenchContext& context) -> absl::StatusOr<Findings> {
                          MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kF8E4M3));
                          const Work work[] = {context.ceilings.Read(context.weights.data(), context.weights.size())};
                          const auto series = context.timer.Measure(work);
                          return OneRow(MakeRow("DRAM read", context.pool.threads(), "GB/s", series[0],
                                                "bytes read, each once, from a buffer larger than all caches"));
                        }});
  benchmarks.push_back({"ceilings", "dot", [](BenchContext& context) -> absl::StatusOr<Findings> {
                          const Work work[] = {context.ceilings.Dot()};
                          const auto series = context.timer.Measure(work);
                          return OneRow(
                              MakeRow(std::string("dot product, ") + context.ceilings.probes().dot_instruction,
                                      context.pool.threads(), "GFLOP/s", series[0],
                                      "multiplications and additions in registers, two for each multiply-add"));
                        }});
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
