// What this GPU can do at most, measured: the denominators of every ratio in the report.
#pragma once

#include <cstdint>
#include <functional>

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

// Seconds of one call of `launch`, the median of several runs after a first one that is not counted. Each run is long
// enough to be timed by events on the device.
double SecondsOf(const std::function<LaunchResult()>& launch);

// Products for two seconds, so that clocks are up when something is timed.
void WarmUp();

// Whether mma.m16n8k32 on E4M3 is an instruction of the GPU. On compute capability 9.0 it is a sequence of conversions
// and BF16 products: its rate says nothing of what the GPU can do with FP8.
bool HasNativeFp8Mma();

// Bytes read plus bytes written in a second by the driver's copy within device memory.
double CopyBandwidth();

// Bytes in a second from pinned host memory.
double PinnedBandwidth();

// Multiplications and additions in a second of mma.m16n8k16 on BF16, or of m16n8k32 on E4M3 (compute capability 8.9),
// operands in registers. What a tensor core does through these: about six tenths of what it can on compute capability
// 9.0, which has other instructions (library_ceilings.py).
double MmaRate(bool fp8 = false);

// Runs `rounds` times 8 independent mma in each of 8 warps of every block.
LaunchResult LaunchMmaProbe(bool fp8, int blocks, int rounds, float* out);
inline constexpr double kProbeFlopsPerBlockAndRound = 8.0 * 8 * 2 * 16 * 8 * 16;  // on BF16; on E4M3 twice as many

}  // namespace moestro::cuda
