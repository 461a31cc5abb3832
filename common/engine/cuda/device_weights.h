// What a device computes with of a model's weights, copied there once: everything but the routed experts, of which the
// CPU reads the ones in the segment, and the embedding, of which a step needs a row a token.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/model/binding.h"

namespace moestro::engine {

class DeviceWeights {
 public:
  static int64_t Bytes(const weights::ModelSpec& spec, const model::ModelWeights& weights);
  // Returns when the copies are done. `weights` point into host memory. RESOURCE_EXHAUSTED if the device is full.
  static absl::StatusOr<DeviceWeights> Copy(device::Device& device, const weights::ModelSpec& spec,
                                            const model::ModelWeights& weights);

  // Pointers into device memory; no embedding, no routed experts.
  const model::ModelWeights& get() const { return weights_; }

 private:
  model::ModelWeights weights_;
  std::vector<device::Memory> memory_;  // of each layer, then of the head
};

}  // namespace moestro::engine
