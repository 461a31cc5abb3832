// How devices that share a prompt exchange rows, keys and values: --device-exchange.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "services/prefill/config.h"

namespace moestro::prefill {

struct ExchangeChoice {
  bool peers = false;  // from device to device; otherwise through the host's memory
  std::string reason;  // why not; empty: nobody has asked, or it is so
  friend bool operator==(const ExchangeChoice&, const ExchangeChoice&) = default;
};

// auto: from device to device where all of these can (collective::CheckPeers). FAILED_PRECONDITION if the setting
// demands it and they cannot; it names the flag and the remedy. One device, or none, exchanges nothing.
absl::StatusOr<ExchangeChoice> ChooseExchange(DeviceExchange setting, std::span<device::Device* const> devices);

}  // namespace moestro::prefill
