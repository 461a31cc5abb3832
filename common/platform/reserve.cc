#include "common/platform/reserve.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/mutex.h"
#include "common/platform/cgroup_cpu.h"
#include "common/platform/worker_pool.h"

namespace moestro {
namespace {

// Takes some ms: often enough to report progress and to check for interruption. fallocate gives back its pages when a
// signal interrupts it; a piece this short completes between two signals of any timer.
constexpr int64_t kPieceBytes = int64_t{16} << 20;

struct ReservedPiece {
  int64_t begin = 0;
  int64_t end = 0;
  const NumaDomain* domain = nullptr;
};

std::vector<ReservedPiece> MakePieces(IndexRange bytes, const std::vector<MemoryStretch>& stretches) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<ReservedPiece> pieces;
  int64_t begin = bytes.begin;
  const auto cut = [&](int64_t end, const NumaDomain* domain) {
    while (begin < end) {
      const int64_t next = std::min(begin + kPieceBytes, end);
      pieces.push_back({begin, next, domain});
      begin = next;
    }
  };
  for (const MemoryStretch& stretch : stretches) cut(std::min(RoundUp(stretch.end, page), bytes.end), stretch.domain);
  cut(bytes.end, nullptr);
  return pieces;
}

// 0, or the error number.
int Back(int fd, uint8_t* data, const ReservedPiece& piece) {
  const int64_t bytes = piece.end - piece.begin;
  while (madvise(data + piece.begin, static_cast<size_t>(bytes), MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    // Kernels before 5.14 lack it.
    int rc;
    do {
      rc = fallocate(fd, 0, piece.begin, bytes);
    } while (rc != 0 && errno == EINTR);
    return rc == 0 ? 0 : errno;
  }
  return 0;
}

absl::Status ErrorFor(int error) {
  switch (error) {
    case EFAULT:  // touching the page would have raised SIGBUS: the file system is full
    case ENOMEM:
    case ENOSPC:
    case EFBIG:
      return absl::ResourceExhaustedError("no room");
    default:
      return absl::ErrnoToStatus(error, "cannot reserve memory");
  }
}

}  // namespace

absl::Status ReserveMemory(int fd, uint8_t* data, IndexRange bytes, const ReserveOptions& options) {
  const std::vector<ReservedPiece> pieces = MakePieces(bytes, options.stretches);
  const auto count = static_cast<int64_t>(pieces.size());
  const int64_t threads = options.threads > 0 ? options.threads : int64_t{UsableCpus()};
  WorkerPool pool(static_cast<int>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(1, count))));
  std::vector<const NumaDomain*> current(static_cast<size_t>(pool.threads()));  // by worker
  std::atomic<int64_t> done{0};
  std::atomic<bool> stop{false};
  Mutex mutex;
  absl::Status result;
  pool.Run(count, [&](int64_t index, int worker) {
    if (stop.load(std::memory_order_relaxed)) return;
    const ReservedPiece& piece = pieces[static_cast<size_t>(index)];
    const NumaDomain*& domain = current[static_cast<size_t>(worker)];
    if (domain != piece.domain) {
      domain = piece.domain;
      PlaceNewPagesIn(domain == nullptr ? NumaDomain{} : *domain).IgnoreError();
    }
    const int error = Back(fd, data, piece);
    absl::Status status = error == 0 ? absl::OkStatus() : ErrorFor(error);
    const int64_t total = done.fetch_add(piece.end - piece.begin, std::memory_order_relaxed) + piece.end - piece.begin;
    if (status.ok() && worker == 0 && options.watch) status = options.watch(total);
    if (status.ok()) return;
    stop.store(true, std::memory_order_relaxed);
    const MutexLock lock(mutex);
    result.Update(std::move(status));
  });
  if (current[0] != nullptr) PlaceNewPagesIn({}).IgnoreError();  // worker 0 is the calling thread
  return result;
}

}  // namespace moestro
