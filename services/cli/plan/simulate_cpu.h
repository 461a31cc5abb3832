// `moestro simulate --cpu`: the time of a prompt and of decode on a machine without a GPU, described by a file.
// Formulas (common/roofline/cpu_seconds.h) with the shares of the machine's rates that this project's kernels reach.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/roofline/cpu_seconds.h"

namespace moestro::cli {

struct SimulateCpuFlags {
  std::string model;
  std::vector<int64_t> tokens = {1024};
  int64_t generate = 1024;      // tokens after the prompt
  std::string format = "int8";  // of the weights: one of kCpuFormats
  int sockets = 0;              // 0: all
  bool paper = false;           // also compares with Table 1 of the article on SGLang's CPU backend
  bool json = false;
};
inline constexpr const char* kCpuFormats[] = {"int8", "fp8", "bf16"};

// Prints the result. INVALID_ARGUMENT names the flag.
absl::Status SimulateCpu(roofline::CpuMachine machine, const SimulateCpuFlags& flags);

}  // namespace moestro::cli
