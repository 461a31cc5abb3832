// Which sequences share a micro-batch ("MoE-Lightning", appendix A.2, Algorithm 2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moestro::decode {

struct MicroBatches {
  std::vector<std::vector<int32_t>> batches;  // sequences by index; none is empty
  std::vector<int32_t> left_over;             // they fit into none of so many
};

struct BatchingLimits {
  int64_t micro_batches = 1;  // at most
  int64_t sequences = 1;      // of a micro-batch
  int64_t tokens = 0;         // of a micro-batch
};

// The longest sequence first, each into the micro-batch that has the fewest tokens, the first of equals. A full
// micro-batch takes no more. So the tokens of two that are not full differ by at most the longest sequence.
MicroBatches CutIntoMicroBatches(std::span<const int64_t> tokens, const BatchingLimits& limits);

}  // namespace moestro::decode
