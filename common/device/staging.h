// A stream with fast copies to the device from unregistered host memory as well. These go through a ring of pinned
// buffers, which several threads fill. Registered memory is copied directly.
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
  // Pinned buffers: one is filled while others are copied. A buffer of 32 MiB occupies the bus for half a millisecond,
  // far longer than waking the threads takes.
  int buffers = 3;
  int64_t buffer_bytes = int64_t{32} << 20;
  // Threads that fill a buffer, including the caller; 0: a quarter of the CPUs, at most 8. One thread copies about 10
  // GB/s; a bus carries 55.
  int threads = 0;
  // Shorter copies go to the driver, which has its own buffer for them.
  int64_t shortest_bytes = int64_t{64} << 10;
};

class CopyThreads;

// One thread at a time may call it, as with any stream. The counts may be read by any thread.
class StagedStream final : public Stream {
 public:
  // The device must outlive it. Buffers and threads are made at first use. If the system refuses to pin the buffers
  // too, the driver copies (slowly), and pinning is retried a minute later.
  static absl::StatusOr<std::unique_ptr<StagedStream>> Create(Device& device, std::string_view name,
                                                              const StagingOptions& options = {});
  ~StagedStream() override;

  // Bytes of copies to the device; direct + staged + pageable is the total.
  int64_t direct_bytes() const { return direct_bytes_; }      // registered, or short
  int64_t staged_bytes() const { return staged_bytes_; }      // through the ring
  int64_t pageable_bytes() const { return pageable_bytes_; }  // neither registered nor staged

  // Staged memory may be freed or changed when this returns.
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
  // Whether there is a ring; makes it if possible.
  absl::StatusOr<bool> HasRing();
  absl::StatusOr<std::vector<Buffer>> MakeBuffers();
  absl::Status Stage(uint8_t* to, const uint8_t* from, int64_t bytes);

  Device& device_;
  const StagingOptions options_;
  std::atomic<int64_t> direct_bytes_ = 0;
  std::atomic<int64_t> staged_bytes_ = 0;
  std::atomic<int64_t> pageable_bytes_ = 0;
  double retry_after_ = 0;  // of refused buffers; on the device's clock
  std::vector<Buffer> ring_;
  size_t next_ = 0;  // next buffer
  std::unique_ptr<CopyThreads> threads_;
  std::unique_ptr<Stream> stream_;  // last member: ends before the buffers from which it copies
};

}  // namespace moestro::device
