// A device that does not exist: nothing is computed or copied, time is counted instead. The same program that drives a
// real device runs on it and learns how long that would have taken.
//
// Every stream, event and thread has a time. Work begins at the latest of: the end of the stream's work before it, the
// events it waits for, the time of the thread that asked for it, and the end of what the bus, or the processors, were
// asked for before: kernels of all streams take turns, for each is taken to fill the device.
// A thread's time moves on when it waits for an event, and when it learns of another thread's signal
// (Device::AdvanceTo). So the result does not depend on how the threads are scheduled, as long as they ask for kernels,
// and for copies of one direction, in the same order. What is not charged: the threads' own work, and what copies and
// kernels take from each other.
#pragma once

#include <memory>

#include "common/device/device.h"
#include "common/device/sim/hardware.h"

namespace moestro::device {

// Seconds that the kernel takes. Products overlap with their memory traffic; element-wise work and launches are added.
// A product's outputs are cut into tiles, which the processors take in waves; of the last wave half is idle on average.
double KernelSeconds(const HardwareSpec& hardware, const KernelCost& cost);

// Its threads begin at time 0.
std::unique_ptr<Device> NewSimDevice(const HardwareSpec& hardware);

}  // namespace moestro::device
