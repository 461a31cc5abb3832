#include "services/prefill/stream/weight_pinning.h"

#include <algorithm>
#include <utility>

namespace moestro {

WeightPinning::WeightPinning(device::Device& device, const uint8_t* data, int64_t bytes, int64_t limit,
                             std::function<void(int64_t pinned, const absl::Status& status)> on_done)
    : device_(device),
      on_done_(std::move(on_done)),
      thread_([this, data, wanted = limit > 0 ? std::min(limit, bytes) : bytes] { Pin(data, wanted); }) {}

WeightPinning::~WeightPinning() {
  stopped_ = true;
  thread_.join();
}

void WeightPinning::Pin(const uint8_t* data, int64_t bytes) {
  int64_t pinned = 0;
  while (pinned < bytes && !stopped_) {
    const int64_t slice = std::min(kSliceBytes, bytes - pinned);
    auto registration = device_.Register(data + pinned, slice, device::HostAccess::kReads);
    if (!registration.ok()) return on_done_(pinned, registration.status());
    slices_.push_back(*std::move(registration));
    pinned += slice;
  }
  on_done_(pinned, absl::OkStatus());
}

}  // namespace moestro
