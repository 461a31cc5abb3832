// A stream whose copies to the device are fast from host memory that is not registered, too: they go through a ring of
// pinned buffers, which several threads fill. What is registered is copied as it lies.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/device/pinned_buffer.h"

namespace moestro::device {

struct StagingOptions {
  // Of pinned memory: a buffer is filled while others are copied. One of 32 MiB takes the bus half a millisecond, far
  // more than waking the threads.
  int buffers = 3;
  int64_t buffer_bytes = int64_t{32} << 20;
  // That fill a buffer, the caller's included; 0: a quarter of the CPUs, at most 8. One copies about 10 GB/s, a bus
  // takes 55.
  int threads = 0;
  // Shorter copies are left to the driver, which has a buffer of its own for them.
  int64_t shortest_bytes = int64_t{64} << 10;
};

class CopyThreads;

// One thread at a time calls it, as any stream; the counts are for all.
class StagedStream final : public Stream {
 public:
  // The device outlives it. Buffers and threads are made when they are first needed; where the system pins no buffers
  // either, the driver copies (slowly), and they are tried again a minute later.
  static absl::StatusOr<std::unique_ptr<StagedStream>> Create(Device& device, std::string_view name,
                                                              const StagingOptions& options = {});
  ~StagedStream() override;

  // Of copies to the device, all of them in direct + staged + pageable.
  int64_t direct_bytes() const { return direct_bytes_; }      // registered, or short
  int64_t staged_bytes() const { return staged_bytes_; }      // through the ring
  int64_t pageable_bytes() const { return pageable_bytes_; }  // neither could be had

  // Memory that is staged may go, or change, when this returns.
  absl::Status CopyToDevice(uint8_t* to, const uint8_t* from, int64_t bytes) override;
  absl::Status CopyToHost(uint8_t* to, const uint8_t* from, int64_t bytes) override {
    return stream_->CopyToHost(to, from, bytes);
  }
  absl::Status Launch(Kernel kernel) override { return stream_->Launch(std::move(kernel)); }
  absl::Status Record(Event& event) override { return stream_->Record(event); }
  absl::Status WaitFor(Event& event) override { return stream_->WaitFor(event); }
  absl::Status Synchronize() override { return stream_->Synchronize(); }

 private:
  struct Buffer {
    PinnedBuffer<uint8_t> memory;
    std::unique_ptr<Event> copied;
    bool used = false;
  };

  StagedStream(Device& device, const StagingOptions& options);
  // Whether there is a ring: makes it if it can.
  absl::StatusOr<bool> HasRing();
  absl::StatusOr<std::vector<Buffer>> MakeBuffers();
  absl::Status Stage(uint8_t* to, const uint8_t* from, int64_t bytes);

  Device& device_;
  const StagingOptions options_;
  std::atomic<int64_t> direct_bytes_ = 0;
  std::atomic<int64_t> staged_bytes_ = 0;
  std::atomic<int64_t> pageable_bytes_ = 0;
  double retry_after_ = 0;  // refused buffers; on the device's clock
  std::vector<Buffer> ring_;
  size_t next_ = 0;  // buffer
  std::unique_ptr<CopyThreads> threads_;
  std::unique_ptr<Stream> stream_;  // last: ends before the buffers that it copies from
};

}  // namespace moestro::device
