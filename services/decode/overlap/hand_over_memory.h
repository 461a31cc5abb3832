// The host's side of what a lane hands over: allocated and pinned once, for the largest step.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "common/device/device.h"
#include "common/model/buffer.h"
#include "common/weights/model_spec.h"
#include "services/decode/overlap/compute.h"

namespace moestro {

class HandOverMemory {
 public:
  // The device outlives it. Where the system does not let so much be pinned, copies are slower.
  static absl::StatusOr<HandOverMemory> Create(device::Device& device, const ModelSpec& spec, int64_t max_rows) {
    HandOverMemory memory(spec, max_rows);
    const int64_t numbers = max_rows * spec.hidden_size;
    const auto pin = [&](auto& buffer, int64_t count, device::Registration& pinned) -> absl::Status {
      auto registered = device.Register(reinterpret_cast<const uint8_t*>(buffer.get()),
                                        count * static_cast<int64_t>(sizeof(*buffer.get())));
      if (registered.ok()) pinned = *std::move(registered);
      return absl::IsResourceExhausted(registered.status()) ? absl::OkStatus() : registered.status();
    };
    MOE_RETURN_IF_ERROR(pin(memory.x_, numbers, memory.pinned_[0]));
    MOE_RETURN_IF_ERROR(pin(memory.choices_, max_rows * spec.experts_per_token, memory.pinned_[1]));
    MOE_RETURN_IF_ERROR(pin(memory.sums_, numbers, memory.pinned_[2]));
    return memory;
  }

  HandOver get() const { return {x_.get(), choices_.get(), sums_.get()}; }

 private:
  HandOverMemory(const ModelSpec& spec, int64_t max_rows)
      : x_(max_rows * spec.hidden_size),
        choices_(max_rows * spec.experts_per_token),
        sums_(max_rows * spec.hidden_size) {}

  Buffer<uint16_t> x_;
  Buffer<ExpertChoice> choices_;
  Buffer<float> sums_;
  device::Registration pinned_[3];  // after the buffers: let go of before they are freed
};

}  // namespace moestro
