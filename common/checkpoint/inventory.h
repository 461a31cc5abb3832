// Checks that a checkpoint has the tensors of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/quantization.h"
#include "common/model/schema.h"
#include "common/weights/model_spec.h"

namespace moestro::checkpoint {

// Of a weight in I4Z: where its parts lie besides codes and scales (two_tensors.h), whose offsets are 0.
struct Int4Source {
  DType dtype = DType::kI4Z32;  // of `rows` rows of `cols` weights, whatever the segment makes of them
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t group = 0;      // inputs that share a scale
  int64_t first_row = 0;  // of the published weight
  ByInput by_input = ByInput::kNone;
  std::optional<TensorRef> zeros;  // absent: all zero points are 8
  std::optional<TensorRef> group_of_input;
};

struct InventoryItem {
  model::ModelTensor expected;  // by the family's name, which is that of several if the checkpoint has them in one
  DType dtype = DType::kF32;    // of its rows in the segment: the published one, but F32 where that is exact
  TensorRef weight;             // its rows follow each other from there; the published tensor may have more
  // For an FP8 linear: [ceil(out/128), ceil(in/128)], weight[o,i] = fp8[o,i] * scale[o/128, i/128]. For one in a format
  // of blocks, if it is published as two tensors, or in I8: the scales, while `weight` is the codes (two_tensors.h),
  // both from the first row on.
  std::optional<TensorRef> scale;
  bool transposed = false;  // the checkpoint has columns as rows
  int64_t output_step = 1;  // of the checkpoint's outputs, every one so far from the last is the tensor's
  // Only of MLA's kv_b_proj, if the checkpoint has its halves apart: keys [heads * kv_lora_rank, qk_nope_head_dim],
  // transposed per head, while `weight` is the values, [heads * v_head_dim, kv_lora_rank].
  std::optional<TensorRef> keys = std::nullopt;
  std::optional<Int4Source> int4 = std::nullopt;

  int64_t bytes() const;  // of weight and scale, as published
};

// Tensors that are left out on purpose.
struct SkippedTensors {
  std::string group;  // in words
  int64_t tensors = 0;
  int64_t bytes = 0;
};
inline constexpr char kPredictionGroup[] = "multi-token prediction";  // a group's name

// Pairs every tensor of the segment that is not derived, in the order of SegmentTensors, with its place in the
// checkpoint (tensor_lookup.h says where it may be); reads only headers, quantization_config, and biases that
// the family does not have, which must be zero. Types: linear layers
// are FP8, BF16, F16, I8 or a format of blocks (block_format.h), also as codes and scales in two tensors, but FP8, BF16
// or F16 in the segment where keys are transposed; embedding and head are BF16, F16 or blocks. The rest becomes F32, so
// it may be of any type that F32 holds exactly: F32, BF16, F16. INVALID_ARGUMENT lists up to ten problems: missing
// tensors, wrong dtypes or shapes, rows that are no whole blocks, scales without a weight and the reverse, codes that
// quantization_config does not name, static scales of inputs, FP8 blocks that straddle K and V of kv_b_proj or two
// parts of one tensor. `skipped` (may be null): layers past num_layers (multi-token prediction), rotary tables, and
// encoders of images and sounds. Other tensors that the model does not use are counted in one line of `warnings` (may
// be null). `checkpoint` must outlive the result.
absl::StatusOr<std::vector<InventoryItem>> CheckInventory(const Checkpoint& checkpoint, const weights::ModelSpec& spec,
                                                          std::vector<std::string>* warnings = nullptr,
                                                          std::vector<SkippedTensors>* skipped = nullptr);

}  // namespace moestro::checkpoint
