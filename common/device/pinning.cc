#include "common/device/pinning.h"

#include <algorithm>
#include <utility>

namespace moestro::device {

Pinning::Pinning(Device& device, const uint8_t* data, int64_t bytes, const Options& options,
                 std::function<void(int64_t pinned, const absl::Status& status)> on_done)
    : device_(device), on_done_(std::move(on_done)), thread_([this, data, bytes, options] {
        Pin(data, options.limit_bytes > 0 ? std::min(options.limit_bytes, bytes) : bytes, options.access);
      }) {}

Pinning::~Pinning() {
  stopped_ = true;
  thread_.join();
}

void Pinning::Pin(const uint8_t* data, int64_t bytes, HostAccess access) {
  int64_t pinned = 0;
  while (pinned < bytes && !stopped_) {
    const int64_t slice = std::min(kSliceBytes, bytes - pinned);
    auto registration = device_.Register(data + pinned, slice, access);
    if (!registration.ok()) return on_done_(pinned, registration.status());
    slices_.push_back(*std::move(registration));
    pinned += slice;
  }
  on_done_(pinned, absl::OkStatus());
}

}  // namespace moestro::device
