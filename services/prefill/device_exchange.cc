#include "services/prefill/device_exchange.h"

#include "absl/strings/str_cat.h"
#include "common/collective/peer/peer_communicator.h"

namespace moestro::prefill {

absl::StatusOr<ExchangeChoice> ChooseExchange(DeviceExchange setting, std::span<device::Device* const> devices) {
  if (setting == DeviceExchange::kHost || devices.size() < 2) return ExchangeChoice{};
  const absl::Status peers = collective::CheckPeers(devices);
  if (peers.ok()) return ExchangeChoice{.peers = true, .reason = ""};
  if (setting == DeviceExchange::kAuto) return ExchangeChoice{.peers = false, .reason = std::string(peers.message())};
  return absl::FailedPreconditionError(absl::StrCat("--device-exchange peer: ", peers.message(), "; use auto or host"));
}

}  // namespace moestro::prefill
