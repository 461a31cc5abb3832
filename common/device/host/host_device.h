// The host as a device: streams are threads, device memory is limited heap memory, kernels are functions. Slots,
// events, failures and overlap behave as on a real device, without one in the machine.
#pragma once

#include <cstdint>
#include <memory>

#include "common/device/device.h"
#include "common/device/host/clock.h"

namespace moestro::device {

// Memory of a role's host device whose --device-memory is 0.
inline constexpr int64_t kHostDeviceBytes = int64_t{4} << 30;

struct HostDeviceOptions {
  int64_t memory_bytes = int64_t{1} << 30;
  // Total bandwidth of all copies in one direction, as on a bus; 0: memory speed.
  double copy_bytes_per_second = 0;
  const Clock* clock = &SteadyClock();  // must outlive the device
};

std::unique_ptr<Device> NewHostDevice(const HostDeviceOptions& options);

}  // namespace moestro::device
