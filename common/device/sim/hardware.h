// A machine's parameters for the simulated device. Files with such parameters: deploy/hardware.
#pragma once

#include <string>

namespace moestro::device {

// Rates are from the data sheet; the fractions say how much of them programs reach.
struct HardwareSpec {
  std::string name;
  double gpu_memory_bytes = 0;
  double gpu_memory_bytes_per_second = 0;
  double gpu_processors = 0;         // units that multiply tiles independently (NVIDIA: streaming multiprocessors)
  double fp8_flops_per_second = 0;   // F32 accumulation, no sparsity; the BF16 rate if there is no FP8
  double bf16_flops_per_second = 0;  // F32 accumulation, no sparsity
  double copy_bytes_per_second = 0;  // pinned memory over the bus, per direction, measured: has no fraction
  double copy_seconds = 0;           // latency of a copy
  double launch_seconds = 0;         // per kernel
  double fp8_linear_fraction = 1;    // of the FP8 rate, in products of FP8 values with weights
  double bf16_linear_fraction = 1;   // of the BF16 rate, in products of BF16 values with weights
  double attention_fraction = 1;     // of the BF16 rate, in attention
  double memory_fraction = 1;        // of the memory bandwidth
  // Decode with experts on the CPU; 0: unknown.
  double decode_memory_fraction = 0;       // of the GPU's memory bandwidth, in products with few rows
  double decode_attention_fraction = 0;    // of the BF16 rate, in attention of single rows; 0: attention_fraction
  double cpu_memory_bytes_per_second = 0;  // data sheet, all sockets
  double cpu_memory_fraction = 0;          // of that, in the experts' products with few rows, waits included
  // Decode beside a prompt whose weights stream; 0: unknown.
  double cpu_cores = 0;
  double cpu_read_bytes_per_second = 0;  // that all cores reach while none waits for another
};

}  // namespace moestro::device
