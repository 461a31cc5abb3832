#include "common/platform/bandwidth.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace moestro {
namespace {

using Clock = std::chrono::steady_clock;

// Source and destination together. Larger than most sockets' caches, small beside any model.
constexpr int64_t kCopyBufferBytes = int64_t{256} << 20;
constexpr std::chrono::milliseconds kCopyTime(200);  // the first touch of the buffer takes about 100 ms more
// Bytes between two reads of the clock. Above the size at which memcpy starts to bypass caches on common machines.
constexpr int64_t kCopyChunk = int64_t{4} << 20;

constexpr int64_t kReadBytes = int64_t{256} << 20;
constexpr std::chrono::seconds kReadTime(1);
constexpr int64_t kReadChunk = int64_t{4} << 20;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Calls work(i) for i in [0, threads), each on its own thread.
absl::Status RunThreads(int threads, const std::function<void(int)>& work) {
  try {
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) running.emplace_back(work, i);
  } catch (const std::system_error& e) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start ", threads, " threads: ", e.what()));
  }
  return absl::OkStatus();
}

struct CopyResult {
  Clock::time_point begin;
  Clock::time_point end;
  int64_t bytes = 0;
};

CopyResult CopyUntil(const uint8_t* from, uint8_t* to, int64_t bytes, Clock::duration time) {
  CopyResult result{.begin = Clock::now(), .end = {}, .bytes = 0};
  int64_t offset = 0;
  do {
    const int64_t count = std::min(kCopyChunk, bytes - offset);
    std::memcpy(to + offset, from + offset, count);
    result.bytes += count;
    offset = offset + count < bytes ? offset + count : 0;
    result.end = Clock::now();
  } while (result.end - result.begin < time);
  return result;
}

}  // namespace

absl::StatusOr<double> MeasureCopyBandwidth(int threads) {
  const int64_t half = kCopyBufferBytes / 2;
  if (threads < 1 || threads > half) return absl::InvalidArgumentError(absl::StrCat(threads, " threads to copy with"));
  void* mapped = mmap(nullptr, kCopyBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return absl::ResourceExhaustedError("not enough memory to measure copy bandwidth");
  const absl::Cleanup unmap = [&] { munmap(mapped, kCopyBufferBytes); };
  madvise(mapped, kCopyBufferBytes, MADV_HUGEPAGE);  // a hint
  auto* const from = static_cast<uint8_t*>(mapped);
  auto* const to = from + half;
  const int64_t share = half / threads;
  // Each thread first touches the part that it copies, so the part is in the thread's NUMA domain.
  std::vector<CopyResult> results(threads);
  MOE_RETURN_IF_ERROR(RunThreads(threads, [&](int i) {
    std::memset(from + i * share, 1, share);
    std::memset(to + i * share, 2, share);
    results[i] = CopyUntil(from + i * share, to + i * share, share, kCopyTime);
  }));
  const auto begin = std::ranges::min_element(results, {}, &CopyResult::begin)->begin;
  const auto end = std::ranges::max_element(results, {}, &CopyResult::end)->end;
  int64_t bytes = 0;
  for (const CopyResult& result : results) bytes += result.bytes;
  return static_cast<double>(bytes) / Seconds(end - begin);
}

absl::StatusOr<double> MeasureReadRate(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  const absl::Cleanup close_fd = [&] { close(fd); };
  posix_fadvise(fd, 0, kReadBytes, POSIX_FADV_DONTNEED);
  posix_fadvise(fd, 0, kReadBytes, POSIX_FADV_SEQUENTIAL);
  const auto buffer = std::make_unique<uint8_t[]>(kReadChunk);
  const Clock::time_point begin = Clock::now();
  int64_t bytes = 0;
  while (bytes < kReadBytes && Clock::now() - begin < kReadTime) {
    const ssize_t count = read(fd, buffer.get(), std::min(kReadChunk, kReadBytes - bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, path);
    if (count == 0) break;
    bytes += count;
  }
  if (bytes == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty, its read rate cannot be measured"));
  return static_cast<double>(bytes) / Seconds(Clock::now() - begin);
}

}  // namespace moestro
