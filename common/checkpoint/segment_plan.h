// The plan of a checkpoint's weight segment: its tensors and the source of each.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/inventory.h"
#include "common/weights/segment_writer.h"

namespace moestro::checkpoint {

// How rows of a tensor of the segment come from the checkpoint (services/weight_store/pack/row_reader.h).
struct TensorSource {
  enum class Kind {
    kRows,           // the published rows, byte by byte
    kInterleaved,    // the published rows in another order: TensorInfo::interleaved_rows
    kTransposed,     // BF16: the checkpoint has columns as rows
    kWiden,          // router, norms, biases: F32, BF16 or F16, stored as F32
    kTransposeKeys,  // the key half of kv_b_proj, transposed per head
    kTwoTensors,     // codes and scales: a row is made of both (two_tensors.h)
    kInt4,           // codes, scales and zero points, by rows
    kInt4ByInput,    // the same of AWQ and GPTQ, which have outputs as columns
    kJoinHalves,     // kv_b_proj of which the checkpoint has keys, transposed per head, and values apart
    kRounded,        // the published rows as F16, each value rounded once
  };
  Kind kind = Kind::kRows;
  TensorRef weight;
  std::optional<TensorRef> scale;  // FP8, kTwoTensors
  // kTransposed, kWiden, kTwoTensors, kInt4: from one of the tensor's outputs to the next, in the published ones.
  int64_t output_step = 1;
  std::optional<TensorRef> keys = std::nullopt;   // kJoinHalves only; weight is the values
  std::optional<Int4Source> int4 = std::nullopt;  // kInt4, kInt4ByInput; also of kTransposeKeys and kRounded
};

struct Plan {
  std::vector<weights::TensorPlan> tensors;  // sorted by name, as SegmentWriter requires
  std::vector<TensorSource> sources;         // sources[i] fills tensors[i]; refers to the checkpoint
};

// INVALID_ARGUMENT names a tensor that is too large. The same for an FP8 kv_b_proj whose scale blocks straddle heads
// after the key half is transposed (qk_nope_head_dim, v_head_dim and kv_lora_rank must then be multiples of 128).
absl::StatusOr<Plan> MakePlan(const std::vector<InventoryItem>& inventory, const weights::ModelSpec& spec);

// The tensors of such a model's segment, sorted by name, computed from its shapes. `fp8`: linear layers are FP8 with
// block scales (embedding and head never are), else BF16. Routed experts have the type `experts`, if it is given.
// Errors as MakePlan.
absl::StatusOr<std::vector<weights::TensorPlan>> PlanShapes(const weights::ModelSpec& spec, bool fp8,
                                                            std::optional<DType> experts = std::nullopt);

// Bytes of the head in a segment with these tensors. Of a tied head: of the embedding's second form.
int64_t HeadBytes(const std::vector<weights::TensorPlan>& plan);

}  // namespace moestro::checkpoint
