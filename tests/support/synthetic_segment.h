// A weight segment in memory, filled with reproducible random weights for any ModelSpec: models smaller and odder than
// a checkpoint on disk could be.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "common/weights/segment.h"
#include "tests/support/aligned_memory.h"

namespace moestro {

struct SyntheticOptions {
  ModelSpec spec;
  bool fp8 = true;  // linear layers in FP8 with block scales, else BF16; the head is always BF16
  uint64_t seed = 1;
  bool decisive_biases = false;  // e_score_correction_bias outweighs every score: all tokens take the same experts
  std::set<std::string> omitted = {};  // tensors that the segment lacks
  // Its embedding is NaN, -1: none's. Not 0: its logits are those of the id before it, to which a tie goes, so that
  // greedy sampling never gives it, whatever the kernels.
  int32_t nan_token = -1;
};

struct SyntheticSegment {
  AlignedMemory memory;
  std::unique_ptr<const WeightSegment> segment;
};

SyntheticSegment MakeSyntheticSegment(const SyntheticOptions& options);

// A small model with every irregularity: dimensions that are no multiples of 64 or 128 where that is allowed, YaRN,
// expert groups, a dense layer, padding rows in the vocabulary.
ModelSpec SmallSpec();
// The same with grouped queries and a softmax router, as Qwen3-MoE has them, and two query heads to a kv head.
ModelSpec SmallGroupedSpec();
// The same without what a model may lack: shared experts, and a rank between hidden state and queries.
ModelSpec BareSpec();

}  // namespace moestro
