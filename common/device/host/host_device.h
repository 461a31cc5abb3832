// The host as a device: streams are threads, device memory is heap memory up to a limit, kernels are functions. Slots,
// events, failures and overlap are as on a device of its own, with no such device in the machine.
#pragma once

#include <cstdint>
#include <memory>

#include "common/device/device.h"
#include "common/device/host/clock.h"

namespace moestro::device {

struct HostDeviceOptions {
  int64_t memory_bytes = int64_t{1} << 30;
  // Of all copies in one direction together, each direction for itself, as on a bus; 0: as fast as memory is.
  double copy_bytes_per_second = 0;
  const Clock* clock = &SteadyClock();  // outlives the device
};

std::unique_ptr<Device> NewHostDevice(const HostDeviceOptions& options);

}  // namespace moestro::device
