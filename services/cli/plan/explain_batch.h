// `moestro plan --explain roofline` and `--explain batch`: where computations of decode belong on a machine, and how
// many requests should share a stream of weights. Both are formulas of common/roofline.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace moestro::cli {

// The first: what the model has.
inline constexpr const char* kBatchFormats[] = {"published", "bf16", "fp8", "int8"};

struct ExplainBatchFlags {
  std::string model;
  std::string hardware;                   // a file of deploy/hardware; empty: this machine, whose rates are measured
  std::string format = kBatchFormats[0];  // of the linear layers
  int64_t prompt = 77;                    // tokens of a request
  int64_t generate = 32;
  int64_t context = 512;      // positions that attention sees, for the rooflines
  int64_t micro_batch = 128;  // rows of the experts, for the rooflines
  bool json = false;
};

// Needs a file: this machine has no link to a device.
absl::Status ExplainRoofline(ExplainBatchFlags flags);
absl::Status ExplainBatch(ExplainBatchFlags flags);

}  // namespace moestro::cli
