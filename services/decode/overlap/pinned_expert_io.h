// The host's side of what a lane hands over: allocated and pinned once, for the largest step.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "common/device/pinned_buffer.h"
#include "common/engine/decode_compute.h"
#include "common/weights/model_spec.h"

namespace moestro::decode {

class PinnedExpertIo {
 public:
  // The device outlives it.
  static absl::StatusOr<PinnedExpertIo> Create(device::Device& device, const weights::ModelSpec& spec,
                                               int64_t max_rows) {
    MOE_ASSIGN_OR_RETURN(auto x, device::PinnedBuffer<uint16_t>::Create(device, max_rows * spec.hidden_size));
    MOE_ASSIGN_OR_RETURN(auto choices,
                         device::PinnedBuffer<model::ExpertChoice>::Create(device, max_rows * spec.experts_per_token));
    MOE_ASSIGN_OR_RETURN(auto sums, device::PinnedBuffer<float>::Create(device, max_rows * spec.hidden_size));
    return PinnedExpertIo(std::move(x), std::move(choices), std::move(sums));
  }

  engine::ExpertIo get() const { return {x_.get(), choices_.get(), sums_.get()}; }

 private:
  PinnedExpertIo(device::PinnedBuffer<uint16_t> x, device::PinnedBuffer<model::ExpertChoice> choices,
                 device::PinnedBuffer<float> sums)
      : x_(std::move(x)), choices_(std::move(choices)), sums_(std::move(sums)) {}

  device::PinnedBuffer<uint16_t> x_;
  device::PinnedBuffer<model::ExpertChoice> choices_;
  device::PinnedBuffer<float> sums_;
};

}  // namespace moestro::decode
