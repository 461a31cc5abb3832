// A machine as numbers: what the simulated device knows of it. Files of such numbers: deploy/hardware.
#pragma once

#include <string>

namespace moestro::device {

// Rates are of the data sheet; the fractions say what programs get of them.
struct HardwareSpec {
  std::string name;
  double gpu_memory_bytes = 0;
  double gpu_memory_bytes_per_second = 0;
  double gpu_processors = 0;         // that multiply tiles of their own (NVIDIA: streaming multiprocessors)
  double fp8_flops_per_second = 0;   // with F32 accumulation, without sparsity; BF16's where there is no FP8
  double bf16_flops_per_second = 0;  // with F32 accumulation, without sparsity
  double copy_bytes_per_second = 0;  // of pinned memory over the bus, each direction, measured: no fraction of its own
  double copy_seconds = 0;           // before the first byte of a copy arrives
  double launch_seconds = 0;         // of a kernel
  double fp8_linear_fraction = 1;    // of the FP8 rate, in products of FP8 numbers with weights
  double bf16_linear_fraction = 1;   // of the BF16 rate, in products of BF16 numbers with weights
  double attention_fraction = 1;     // of the BF16 rate, in attention
  double memory_fraction = 1;        // of the memory bandwidth
  // For decode beside experts on the CPU; 0: not known.
  double decode_memory_fraction = 0;       // of the GPU's memory bandwidth, in products of a few rows
  double cpu_memory_bytes_per_second = 0;  // data sheet, all sockets
  double cpu_memory_fraction = 0;          // of that, in the experts' products of a few rows
};

}  // namespace moestro::device
