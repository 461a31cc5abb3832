// Which tensors a model consists of, and whether a checkpoint has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/weights/model_spec.h"
#include "services/weight_store/checkpoint/checkpoint.h"

namespace moestro {

struct ExpectedTensor {
  enum class Kind {
    kLinear,     // [out, in]; F8_E4M3 with a block scale, or BF16
    kNorm,       // BF16 or F32
    kEmbedding,  // [vocab, hidden], also the output head; BF16
    kRouter,     // [experts, hidden]; BF16 or F32
    kBias,       // the router's selection bias, [experts]; F32 only, BF16 would scramble the order
  };
  std::string name;
  std::vector<int64_t> shape;
  Kind kind = Kind::kLinear;
};

// In order of use: embedding, layers (each: attention, then feed-forward, experts ascending), final norm, head.
std::vector<ExpectedTensor> ExpectedTensors(const ModelSpec& spec);

// Elements of all expected tensors; scales and multi-token-prediction layers are not counted.
int64_t ParameterCount(const ModelSpec& spec);

struct InventoryItem {
  ExpectedTensor expected;
  TensorRef weight;
  // Of an FP8 linear: F32 [ceil(out/128), ceil(in/128)], weight[o,i] = fp8[o,i] * scale[o/128, i/128].
  std::optional<TensorRef> scale;
};

// Pairs every expected tensor, in the order of ExpectedTensors, with its place in the checkpoint; reads headers only.
// INVALID_ARGUMENT lists up to ten of the problems: tensors that are missing or of the wrong dtype or shape, scales
// without an FP8 weight and the reverse, an FP8 kv_b_proj whose scale blocks would straddle its K and V halves.
// Layers past num_layers (multi-token prediction) and rotary tables are ignored; other tensors that the model does not
// use are counted in one line of `warnings` (may be null). `checkpoint` must outlive the result.
absl::StatusOr<std::vector<InventoryItem>> CheckInventory(const Checkpoint& checkpoint, const ModelSpec& spec,
                                                          std::vector<std::string>* warnings = nullptr);

}  // namespace moestro
