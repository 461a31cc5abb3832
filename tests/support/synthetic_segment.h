// A weight segment in memory with reproducible random weights, for any ModelSpec: smaller and odder models than a
// checkpoint on disk allows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/weights/segment.h"
#include "tests/support/aligned_memory.h"

namespace moestro {

struct SyntheticOptions {
  weights::ModelSpec spec;
  bool fp8 = true;  // linear layers in FP8 with block scales, else BF16; the head is always BF16
  // Instead of `fp8`: of linear layers, embedding and head; BF16, F16, I8 or a format of blocks, whose rows must be
  // whole. MLA's latents are then expanded in BF16. With I8, so are embedding and head.
  std::optional<DType> type = {};
  // Instead of `type`: each matrix has the next of these. All experts of a layer are alike.
  std::vector<DType> mixture = {};
  // Of routed experts, whatever the others are.
  std::optional<DType> expert_type = {};
  uint64_t seed = 1;
  bool decisive_biases = false;  // e_score_correction_bias outweighs every score: all tokens choose the same experts
  std::set<std::string> omitted = {};  // tensors missing from the segment
  // The token with a NaN embedding; -1: none. Not 0: its logits equal those of the previous id, which wins ties. So
  // greedy sampling never chooses it, with any kernels.
  int32_t nan_token = -1;
};

struct SyntheticSegment {
  AlignedMemory memory;
  std::unique_ptr<const weights::WeightSegment> segment;
};

SyntheticSegment MakeSyntheticSegment(const SyntheticOptions& options);

// Small mixtures of experts in every type of weights but FP8 and BF16, as checkpoints have them.
struct TypedModel {
  const char* name;
  SyntheticOptions options;
};
std::vector<TypedModel> TypedModels();

// A small model with every irregularity: dimensions that are not multiples of 64 or 128 where that is allowed, YaRN,
// expert groups, a dense layer, padding rows in the vocabulary.
weights::ModelSpec SmallSpec();
// The same with grouped queries and a softmax router, as in Qwen3-MoE, and two query heads per kv head.
weights::ModelSpec SmallGroupedSpec();
// SmallGroupedSpec with what families do to queries and keys, each in heads of `head_dim` numbers. A token chooses all
// experts: without biases no other choice is certain.
struct GroupedForm {
  const char* name;
  weights::ModelSpec spec;
};
std::vector<GroupedForm> GroupedForms(int64_t head_dim = 64);
// SmallSpec without optional parts: no shared experts, and no low-rank query projection.
weights::ModelSpec BareSpec();
// SmallSpec with dense layers between those with experts, and after them.
weights::ModelSpec SmallMixedSpec();
// SmallSpec with a wider shared expert behind a gate.
weights::ModelSpec SmallGatedSpec();

}  // namespace moestro
