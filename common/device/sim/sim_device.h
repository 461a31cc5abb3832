// A simulated device: it computes and copies nothing, and counts time instead. A program for a real device runs on it
// unchanged and learns how long it would have taken.
//
// Every stream, event and thread has a time. Work begins at the latest of four times: the end of the stream's previous
// work; the events it waits for; the time of the calling thread; the end of the work already queued on the bus or the
// processors. Kernels of all streams take turns, since each is assumed to fill the device. A thread's time advances
// when it waits for an event, and when it learns of another thread's signal (Device::AdvanceTo). So thread scheduling
// does not affect the result, as long as kernels, and copies of one direction, are requested in the same order. A copy
// that is shorter than its own latency does not take turns: several threads may request such copies at any time. Not
// charged: the threads' own work, and the bandwidth that copies and kernels take from each other.
//
// A device is a view of a world (world.h), whose clock it has. Programs that run beside this one share the host's
// memory with its copies, if the view says so.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/device/device.h"
#include "common/device/sim/hardware.h"
#include "common/device/sim/world.h"

namespace moestro::device {

// From a device over the bus to its host and back: 1.1 us is what NVIDIA's gdrcopy_pplat prints, where the CPU writes a
// number, a kernel that waits for it writes another one to pinned host memory, and the CPU waits for that.
inline constexpr double kBusTripSeconds = 1.1e-6;

// Seconds of a kernel. Products overlap with their memory traffic; element-wise work and launches are added. A
// product's outputs are cut into tiles, which processors take in waves; half of the last wave is idle on average. Host
// memory that it uses is added, too: the bytes at the rate of copies, and the trips.
double KernelSeconds(const HardwareSpec& hardware, const KernelCost& cost);

// A device in a world that outlives it.
struct SimView {
  World& world;
  std::string name;  // of its turns there: processors, and both directions of its link
  // What copies to the device read, besides the link; the user's rate is copy_bytes_per_second. None: they have it for
  // themselves.
  std::optional<World::Share> host_memory = {};
};

std::unique_ptr<Device> NewSimDevice(const HardwareSpec& hardware, const SimView& view);
// In a world of its own, whose threads begin at time 0.
std::unique_ptr<Device> NewSimDevice(const HardwareSpec& hardware);

}  // namespace moestro::device
