// The measured limits of this GPU: the denominators of every ratio in the report.
#pragma once

#include <cstdint>
#include <functional>

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

// Seconds of one call of `launch`: the median of several runs after an uncounted first one. Each run is long enough to
// be timed by events on the device.
double SecondsOf(const std::function<LaunchResult()>& launch);
// From now on it launches once, without waiting for clocks, and returns that time: for profilers, which repeat launches
// themselves.
void OnlyOnce();

// Runs products for two seconds, so that clocks are up before a measurement.
void WarmUp();

// Whether mma.m16n8k32 on E4M3 is an instruction of the GPU. On compute capability 9.0 it is a sequence of conversions
// and BF16 products, so its rate does not show the GPU's FP8 rate.
bool HasNativeFp8Mma();

// Bytes read plus bytes written per second by the driver's copy within device memory.
double CopyBandwidth();

// Bytes per second from, or to, pinned host memory.
enum class Direction { kFromHost, kToHost };
double PinnedBandwidth(Direction direction = Direction::kFromHost);

// Multiplications and additions per second of mma.m16n8k16 on BF16, or of m16n8k32 on E4M3 (compute capability 8.9),
// with operands in registers. This is what a tensor core reaches through these instructions: on compute capability 9.0,
// which has other instructions, about six tenths of its maximum (library_ceilings.py).
double MmaRate(bool fp8 = false);

// Runs 8 independent mma `rounds` times in each of 8 warps of every block.
LaunchResult LaunchMmaProbe(bool fp8, int blocks, int rounds, float* out);
inline constexpr double kProbeFlopsPerBlockAndRound = 8.0 * 8 * 2 * 16 * 8 * 16;  // on BF16; on E4M3 twice as many

}  // namespace moestro::cuda
