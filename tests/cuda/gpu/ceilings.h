// What this GPU can do at most, measured: the denominators of every ratio in the report.
#pragma once

#include <cstdint>
#include <functional>

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

// Seconds of one call of `launch`, the median of several runs after a first one that is not counted. Each run is long
// enough to be timed by events on the device.
double SecondsOf(const std::function<LaunchResult()>& launch);

// Bytes read plus bytes written in a second by the driver's copy within device memory.
double CopyBandwidth();

// Multiplications and additions in a second of mma.m16n8k16 on BF16, operands in registers.
double MmaRate();

// Runs `rounds` times 8 independent mma in each of 8 warps of every block.
LaunchResult LaunchMmaProbe(int blocks, int rounds, float* out);
inline constexpr double kProbeFlopsPerBlockAndRound = 8.0 * 8 * 2 * 16 * 8 * 16;

}  // namespace moestro::cuda
