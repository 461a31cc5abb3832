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

// Bytes in a second from pinned host memory.
double PinnedBandwidth();

// Multiplications and additions in a second of mma.m16n8k16 on BF16, or of m16n8k32 on E4M3 (compute capability 8.9),
// operands in registers. What a tensor core does through these: Hopper's and later ones have other instructions, too.
double MmaRate(bool fp8 = false);

// Runs `rounds` times 8 independent mma in each of 8 warps of every block.
LaunchResult LaunchMmaProbe(bool fp8, int blocks, int rounds, float* out);
inline constexpr double kProbeFlopsPerBlockAndRound = 8.0 * 8 * 2 * 16 * 8 * 16;  // on BF16; on E4M3 twice as many

}  // namespace moestro::cuda
