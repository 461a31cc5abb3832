// Checks that a checkpoint has the tensors of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/schema.h"
#include "common/weights/model_spec.h"

namespace moestro::checkpoint {

struct InventoryItem {
  model::ModelTensor expected;
  TensorRef weight;
  // For an FP8 linear: F32 [ceil(out/128), ceil(in/128)], weight[o,i] = fp8[o,i] * scale[o/128, i/128].
  std::optional<TensorRef> scale;
};

// Pairs every expected tensor, in the order of CheckpointTensors, with its place in the checkpoint; reads only headers.
// INVALID_ARGUMENT lists up to ten problems: missing tensors, wrong dtypes or shapes, scales without an FP8 weight and
// the reverse, an FP8 kv_b_proj whose scale blocks straddle its K and V halves. Layers past num_layers (multi-token
// prediction) and rotary tables are ignored. Other tensors that the model does not use are counted in one line of
// `warnings` (may be null). `checkpoint` must outlive the result.
absl::StatusOr<std::vector<InventoryItem>> CheckInventory(const Checkpoint& checkpoint, const weights::ModelSpec& spec,
                                                          std::vector<std::string>* warnings = nullptr);

}  // namespace moestro::checkpoint
