#include "services/decode/logged_pinning.h"

#include <algorithm>
#include <string>

#include "common/telemetry/log.h"

namespace moestro::decode {

std::unique_ptr<device::Pinning> PinLogged(device::Device& device, const char* what, const char* loss,
                                           std::span<const uint8_t> memory, const device::Pinning::Options& options) {
  const int64_t bytes = std::ssize(memory);
  return std::make_unique<device::Pinning>(
      device, memory.data(), bytes, options, [=](int64_t pinned, const absl::Status& status) {
        if (status.ok()) return LogInfo("{} of {} bytes of {} are registered for copies", pinned, bytes, what);
        LogWarning("{} of {} bytes of {} are registered for copies, {}; retried later: {}", pinned, bytes, what, loss,
                   std::string(status.message()));
      });
}

std::unique_ptr<device::Pinning> PinWeights(device::Device& device, const weights::WeightSegment& segment,
                                            int64_t limit_bytes, const char* loss) {
  const auto* const memory = reinterpret_cast<const uint8_t*>(&segment.header());
  return PinLogged(device, "the weights", loss, {memory, static_cast<size_t>(segment.header().total_bytes)},
                   {.limit_bytes = limit_bytes});
}

int64_t PinnedWeightBytes(const weights::WeightSegment& segment, int64_t limit_bytes) {
  const int64_t bytes = segment.header().total_bytes;
  return limit_bytes > 0 ? std::min(limit_bytes, bytes) : bytes;
}

}  // namespace moestro::decode
