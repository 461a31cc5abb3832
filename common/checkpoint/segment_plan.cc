#include "common/checkpoint/segment_plan.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/weights/tensor_size.h"

namespace moestro::checkpoint {
namespace {

using Kind = TensorSource::Kind;

// A packing thread reads kChecksumRows rows at a time, so this bounds its memory. Real models stay below 3 MiB.
constexpr int64_t kMaxRowGroupBytes = int64_t{32} << 20;

Kind KindOf(model::TensorRole role, const InventoryItem& item) {
  if (model::IsWidened(role)) return Kind::kWiden;
  if (role == model::TensorRole::kKeyUpTransposed && !item.keys) return Kind::kTransposeKeys;
  if (role == model::TensorRole::kLatentUp && item.keys) return Kind::kJoinHalves;
  if (item.int4 && item.dtype != item.int4->dtype) return Kind::kRounded;
  if (item.int4) return item.int4->by_input == ByInput::kNone ? Kind::kInt4 : Kind::kInt4ByInput;
  if (IsBlockFormat(item.dtype) && item.scale) return Kind::kTwoTensors;
  if (item.weight.info->interleaved_rows > 0) return Kind::kInterleaved;
  const TensorRef& rows = item.keys ? *item.keys : item.weight;  // keys: they are transposed already
  if (rows.info->dtype != item.dtype) return Kind::kRounded;
  return item.transposed ? Kind::kTransposed : Kind::kRows;
}

// The scale blocks of a latent's keys and values must not straddle heads after the key half is transposed.
absl::Status CheckScaleBlocks(const model::ModelTensor& tensor, DType dtype, const weights::ModelSpec& spec) {
  const bool aligned = spec.kv_lora_rank % kScaleBlock == 0 && spec.qk_nope_head_dim % kScaleBlock == 0 &&
                       spec.v_head_dim % kScaleBlock == 0;
  if (tensor.role != model::TensorRole::kLatentUp || dtype != DType::kF8E4M3 || aligned) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "tensor '%s': F8_E4M3 needs qk_nope_head_dim (%d), v_head_dim (%d) and kv_lora_rank (%d) that are multiples of "
      "128; publish it as BF16",
      tensor.name, spec.qk_nope_head_dim, spec.v_head_dim, spec.kv_lora_rank));
}

absl::StatusOr<weights::TensorPlan> PlanTensor(const model::ModelTensor& tensor, DType dtype,
                                               const weights::ModelSpec& spec) {
  // Lookups in the embedding are by row.
  const bool packed = !model::IsWidened(tensor.role) && tensor.role != model::TensorRole::kEmbedding;
  if (tensor.rows > weights::kMaxTensorDimension || tensor.cols > weights::kMaxTensorDimension ||
      RowBytes(dtype, tensor.cols) > kMaxRowGroupBytes / weights::kChecksumRows) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor '%s': shape [%d, %d] is too large", tensor.name, tensor.rows, tensor.cols));
  }
  MOE_RETURN_IF_ERROR(CheckScaleBlocks(tensor, dtype, spec));
  return weights::TensorPlan{.name = tensor.name,
                             .dtype = dtype,
                             .layout = packed ? weights::TensorLayout::kPacked : weights::TensorLayout::kRowMajor,
                             .rows = tensor.rows,
                             .cols = tensor.cols,
                             .has_scales = weights::HasScales(dtype)};
}

void SortByName(Plan& plan) {
  std::vector<size_t> order(plan.tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) -> const std::string& { return plan.tensors[i].name; });
  Plan sorted;
  for (const size_t i : order) {
    sorted.tensors.push_back(std::move(plan.tensors[i]));
    sorted.sources.push_back(plan.sources[i]);
  }
  plan = std::move(sorted);
}

// The item that a tensor of the segment is made from. `next`: the index of the next one in the order of use.
const InventoryItem& SourceOf(const std::vector<InventoryItem>& inventory, const model::ModelTensor& tensor,
                              const weights::ModelSpec& spec, size_t* next) {
  if (!model::IsDerived(spec, tensor)) return inventory[(*next)++];
  if (tensor.role == model::TensorRole::kHead) return inventory.front();  // the embedding
  return inventory[*next - 1];
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const std::vector<InventoryItem>& inventory, const weights::ModelSpec& spec) {
  Plan plan;
  size_t next = 0;
  for (const model::ModelTensor& tensor : model::SegmentTensors(spec)) {
    const InventoryItem& item = SourceOf(inventory, tensor, spec, &next);
    MOE_ASSIGN_OR_RETURN(weights::TensorPlan planned, PlanTensor(tensor, item.dtype, spec));
    plan.tensors.push_back(std::move(planned));
    const Kind kind = KindOf(tensor.role, item);
    const bool keys_only = tensor.role == model::TensorRole::kKeyUpTransposed && item.keys;
    plan.sources.push_back(
        {kind, keys_only ? *item.keys : item.weight, item.scale, item.output_step, item.keys, item.int4});
  }
  SortByName(plan);
  return plan;
}

absl::StatusOr<std::vector<weights::TensorPlan>> PlanShapes(const weights::ModelSpec& spec, bool fp8,
                                                            std::optional<DType> experts) {
  std::vector<weights::TensorPlan> plan;
  for (const model::ModelTensor& tensor : model::SegmentTensors(spec)) {
    DType dtype = fp8 && model::IsLinear(tensor.role) ? DType::kF8E4M3 : DType::kBF16;
    if (experts && tensor.part == model::TensorPart::kExpert && model::IsLinear(tensor.role)) dtype = *experts;
    if (model::IsWidened(tensor.role)) dtype = DType::kF32;
    MOE_ASSIGN_OR_RETURN(weights::TensorPlan planned, PlanTensor(tensor, dtype, spec));
    plan.push_back(std::move(planned));
  }
  std::ranges::sort(plan, {}, &weights::TensorPlan::name);
  return plan;
}

int64_t HeadBytes(const std::vector<weights::TensorPlan>& plan) {
  const auto head = std::ranges::find(plan, model::kHeadName, &weights::TensorPlan::name);
  return head == plan.end() ? 0 : weights::TensorDataBytes(head->layout, head->dtype, head->rows, head->cols);
}

}  // namespace moestro::checkpoint
