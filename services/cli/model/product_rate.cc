#include "services/cli/model/product_rate.h"

#include <chrono>
#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/kernels/dispatch.h"
#include "common/platform/worker_pool.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::cli {
namespace {

using Clock = std::chrono::steady_clock;

// A matrix of half a megabyte in FP8, which fits into a core's cache, and the rows that an expert of DeepSeek-V3 gets
// of a prompt of 4096 tokens.
constexpr int64_t kRows = 256;
constexpr int64_t kColumns = 2048;
constexpr int64_t kTokens = 128;
constexpr std::chrono::milliseconds kTime(100);
constexpr int64_t kTasksPerThread = 4;  // between two reads of the clock
constexpr uint8_t kByte = 0x38;         // 1 in FP8; as both bytes of a BF16 number, 4e-5

}  // namespace

absl::StatusOr<double> MeasureProductRate(DType linear, int threads) {
  MOE_ASSIGN_OR_RETURN(const CpuKernels* const kernels, SelectKernels());
  const std::vector<uint8_t> weights(PackedBytes(linear, kRows, kColumns) + kPackedAlignment, kByte);
  const std::vector<float> scales(kRows, 1.0f);  // of rows; FP8 has fewer
  static_assert((kRows / kScaleBlock) * (kColumns / kScaleBlock) <= kRows);
  const std::vector<int32_t> compensation(kRows);  // not that of these codes: only time is measured
  const std::vector<uint32_t> exceptions(ExceptionWords(kRows, kColumns));  // none: every number is normal
  PackedMatrix matrix{.dtype = linear, .rows = kRows, .cols = kColumns, .cached = true};
  const auto address = reinterpret_cast<uintptr_t>(weights.data());
  matrix.data = weights.data() + (kPackedAlignment - address % kPackedAlignment) % kPackedAlignment;
  if (linear == DType::kF8E4M3) {
    matrix.scales = scales.data();
    matrix.exceptions = exceptions.data();
  } else if (linear == DType::kI8) {
    matrix.scales = scales.data();
    matrix.compensation = compensation.data();
  }
  const std::vector<uint16_t> rows(kTokens * kColumns, uint16_t{kByte} << 8 | kByte);
  std::vector<std::vector<float>> outputs(threads, std::vector<float>(kTokens * kRows));
  WorkerPool pool(threads);
  const auto run = [&] {
    pool.Run(threads * kTasksPerThread, [&](int64_t, int worker) {
      kernels->linear(matrix, rows.data(), kColumns, kTokens, outputs[worker].data(), kRows, 0, kRows);
    });
  };
  run();  // threads start, caches fill
  const Clock::time_point begin = Clock::now();
  int64_t runs = 0;
  do {
    run();
    ++runs;
  } while (Clock::now() - begin < kTime);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return 2.0 * static_cast<double>(kRows * kColumns * kTokens * threads * kTasksPerThread * runs) / seconds;
}

}  // namespace moestro::cli
