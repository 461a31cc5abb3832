#include "common/device/staging.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/math.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace moestro::device {
namespace {

constexpr double kRetrySeconds = 60;

int ThreadsOf(const StagingOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, 8);
}

}  // namespace

// Copies within host memory on several threads, which sleep between copies.
class CopyThreads {
 public:
  // With `threads` threads, fewer if the system refuses to start more; the caller of Copy is one of them.
  explicit CopyThreads(int threads) {
    try {
      while (parts_ < threads) {
        threads_.emplace_back([this, part = parts_] { Work(part); });
        ++parts_;
      }
    } catch (const std::system_error&) {
    }
  }
  ~CopyThreads() {
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      begun_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void Copy(uint8_t* to, const uint8_t* from, int64_t bytes) {
    {
      MutexLock lock(mutex_);
      to_ = to;
      from_ = from;
      bytes_ = bytes;
      ++round_;
      busy_ = parts_ - 1;
      begun_.notify_all();
    }
    CopyPart(0, to, from, bytes);
    MutexLock lock(mutex_);
    while (busy_ != 0) done_.wait(lock);
  }

 private:
  void CopyPart(int part, uint8_t* to, const uint8_t* from, int64_t bytes) const {
    const IndexRange range = EvenPart(bytes, part, parts_);
    std::memcpy(to + range.begin, from + range.begin, static_cast<size_t>(range.size()));
  }

  void Work(int part) {
    int64_t done = 0;
    uint8_t* to = nullptr;
    const uint8_t* from = nullptr;
    int64_t bytes = 0;
    while (true) {
      {
        MutexLock lock(mutex_);
        while (!stopped_ && round_ == done) begun_.wait(lock);
        if (stopped_) return;
        done = round_;
        to = to_;
        from = from_;
        bytes = bytes_;
      }
      CopyPart(part, to, from, bytes);
      MutexLock lock(mutex_);
      if (--busy_ == 0) done_.notify_all();
    }
  }

  int parts_ = 1;  // before the first Copy
  Mutex mutex_;
  Condition begun_;
  Condition done_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;
  // The current copy.
  uint8_t* to_ ABSL_GUARDED_BY(mutex_) = nullptr;
  const uint8_t* from_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;
};

absl::StatusOr<std::unique_ptr<StagedStream>> StagedStream::Create(Device& device, std::string_view name,
                                                                   const StagingOptions& options) {
  std::unique_ptr<StagedStream> staged(new StagedStream(device, options));
  MOE_ASSIGN_OR_RETURN(staged->stream_, device.NewStream(name));
  return staged;
}

StagedStream::StagedStream(Device& device, const StagingOptions& options) : device_(device), options_(options) {}

StagedStream::~StagedStream() = default;

absl::Status StagedStream::CopyToDevice(uint8_t* to, const uint8_t* from, int64_t bytes) {
  if (bytes < options_.shortest_bytes) {
    direct_bytes_ += bytes;
    return stream_->CopyToDevice(to, from, bytes);
  }
  while (bytes > 0) {
    const HostPart part = device_.PartAt(from, bytes);
    bool has_ring = false;
    if (!part.registered) {
      MOE_ASSIGN_OR_RETURN(has_ring, HasRing());
    }
    if (has_ring) {
      MOE_RETURN_IF_ERROR(Stage(to, from, part.bytes));
    } else {
      MOE_RETURN_IF_ERROR(stream_->CopyToDevice(to, from, part.bytes));
      (part.registered ? direct_bytes_ : pageable_bytes_) += part.bytes;
    }
    to += part.bytes;
    from += part.bytes;
    bytes -= part.bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StagedStream::HasRing() {
  if (!ring_.empty()) return true;
  if (device_.Now() < retry_after_) return false;
  MOE_ASSIGN_OR_RETURN(std::vector<Buffer> buffers, MakeBuffers());
  if (buffers.empty()) {
    retry_after_ = device_.Now() + kRetrySeconds;
    return false;
  }
  threads_ = std::make_unique<CopyThreads>(ThreadsOf(options_));
  ring_ = std::move(buffers);
  return true;
}

// Returns no buffers if they cannot be pinned.
absl::StatusOr<std::vector<StagedStream::Buffer>> StagedStream::MakeBuffers() {
  std::vector<Buffer> buffers;
  for (int i = 0; i < options_.buffers; ++i) {
    MOE_ASSIGN_OR_RETURN(auto memory, PinnedBuffer<uint8_t>::Create(device_, options_.buffer_bytes));
    if (!memory.pinned()) return std::vector<Buffer>();
    MOE_ASSIGN_OR_RETURN(auto copied, device_.NewEvent());
    buffers.push_back({std::move(memory), std::move(copied)});
  }
  return buffers;
}

absl::Status StagedStream::Stage(uint8_t* to, const uint8_t* from, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const int64_t part = std::min(bytes - done, options_.buffer_bytes);
    Buffer& buffer = ring_[next_];
    next_ = (next_ + 1) % ring_.size();
    if (buffer.used) MOE_RETURN_IF_ERROR(buffer.copied->Wait());
    threads_->Copy(buffer.memory.get(), from + done, part);
    MOE_RETURN_IF_ERROR(stream_->CopyToDevice(to + done, buffer.memory.get(), part));
    MOE_RETURN_IF_ERROR(stream_->Record(*buffer.copied));
    buffer.used = true;
    staged_bytes_ += part;
    done += part;
  }
  return absl::OkStatus();
}

}  // namespace moestro::device
