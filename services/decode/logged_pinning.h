// Host memory that is registered with a decode device in the background, and what the log says of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/device/device.h"
#include "common/device/pinning.h"
#include "common/weights/segment.h"

namespace moestro::decode {

// Registers `memory`. Logs how much is registered, and again whenever that changes: "of `what`", and `loss`, which
// follows from what is not. All must outlive the result.
std::unique_ptr<device::Pinning> PinLogged(device::Device& device, const char* what, const char* loss,
                                           std::span<const uint8_t> memory, const device::Pinning::Options& options);

// The same of the segment, at most limit_bytes of it; 0: all.
std::unique_ptr<device::Pinning> PinWeights(device::Device& device, const weights::WeightSegment& segment,
                                            int64_t limit_bytes, const char* loss);
int64_t PinnedWeightBytes(const weights::WeightSegment& segment, int64_t limit_bytes);

}  // namespace moestro::decode
