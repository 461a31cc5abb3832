#include "services/weight_store/pack/plan.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/model/tensor_names.h"

namespace moestro {
namespace {

using Kind = TensorSource::Kind;

// kChecksumRows rows are read at a time, so this bounds a packing thread's memory. Real models have below 3 MiB.
constexpr int64_t kMaxRowGroupBytes = int64_t{32} << 20;

constexpr const char kKeyValueSuffix[] = ".self_attn.kv_b_proj.weight";

Kind KindOf(const ExpectedTensor& tensor) {
  switch (tensor.kind) {
    case ExpectedTensor::Kind::kLinear:
      return Kind::kPack;
    case ExpectedTensor::Kind::kEmbedding:
      return tensor.name == kHeadName ? Kind::kPack : Kind::kCopy;
    case ExpectedTensor::Kind::kNorm:
    case ExpectedTensor::Kind::kRouter:
    case ExpectedTensor::Kind::kBias:
      return Kind::kWiden;
  }
  return Kind::kPack;
}

// `dtype`: of the published tensor.
absl::StatusOr<TensorPlan> PlanTensor(const ExpectedTensor& tensor, DType dtype) {
  const Kind kind = KindOf(tensor);
  TensorPlan plan;
  plan.name = tensor.name;
  plan.dtype = kind == Kind::kWiden ? DType::kF32 : dtype;
  plan.layout = kind == Kind::kPack ? TensorLayout::kPacked : TensorLayout::kRowMajor;
  plan.rows = tensor.shape.size() == 1 ? 1 : tensor.shape[0];
  plan.cols = tensor.shape.back();
  plan.has_scales = dtype == DType::kF8E4M3;
  if (plan.rows > kMaxTensorDimension || plan.cols > kMaxRowGroupBytes / kChecksumRows / DTypeBytes(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor '%s': shape [%d, %d] is too large", plan.name, plan.rows, plan.cols));
  }
  return plan;
}

absl::StatusOr<TensorPlan> PlanTransposedKeys(const TensorPlan& key_value, const ModelSpec& spec) {
  const bool aligned = spec.kv_lora_rank % kScaleBlock == 0 && spec.qk_nope_head_dim % kScaleBlock == 0 &&
                       spec.v_head_dim % kScaleBlock == 0;
  if (key_value.dtype == DType::kF8E4M3 && !aligned) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor '%s': F8_E4M3 needs qk_nope_head_dim (%d), v_head_dim (%d) and kv_lora_rank (%d) that are multiples of "
        "128; publish it as BF16",
        key_value.name, spec.qk_nope_head_dim, spec.v_head_dim, spec.kv_lora_rank));
  }
  TensorPlan plan = key_value;
  plan.name.resize(plan.name.size() - std::string(kKeyValueSuffix).size() + 1);
  plan.name += kKeyUpTransposedSuffix;
  plan.rows = spec.num_heads * spec.kv_lora_rank;
  plan.cols = spec.qk_nope_head_dim;
  if (plan.rows > kMaxTensorDimension) {
    return absl::InvalidArgumentError(absl::StrFormat("tensor '%s': %d rows are too many", plan.name, plan.rows));
  }
  return plan;
}

bool IsKeyValue(const TensorPlan& plan) { return absl::EndsWith(plan.name, kKeyValueSuffix); }

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

}  // namespace

absl::StatusOr<Plan> MakePlan(const std::vector<InventoryItem>& inventory, const ModelSpec& spec) {
  Plan plan;
  for (const InventoryItem& item : inventory) {
    MOE_ASSIGN_OR_RETURN(TensorPlan tensor, PlanTensor(item.expected, item.weight.info->dtype.value()));
    if (IsKeyValue(tensor)) {
      MOE_ASSIGN_OR_RETURN(TensorPlan keys, PlanTransposedKeys(tensor, spec));
      plan.tensors.push_back(std::move(keys));
      plan.sources.push_back({Kind::kTransposeKeys, item.weight, item.scale});
    }
    plan.tensors.push_back(std::move(tensor));
    plan.sources.push_back({KindOf(item.expected), item.weight, item.scale});
  }
  SortByName(plan);
  return plan;
}

absl::StatusOr<std::vector<TensorPlan>> PlanShapes(const ModelSpec& spec, bool fp8) {
  std::vector<TensorPlan> plan;
  for (const ExpectedTensor& expected : ExpectedTensors(spec)) {
    const bool is_fp8 = fp8 && expected.kind == ExpectedTensor::Kind::kLinear;
    MOE_ASSIGN_OR_RETURN(TensorPlan tensor, PlanTensor(expected, is_fp8 ? DType::kF8E4M3 : DType::kBF16));
    if (IsKeyValue(tensor)) {
      MOE_ASSIGN_OR_RETURN(TensorPlan keys, PlanTransposedKeys(tensor, spec));
      plan.push_back(std::move(keys));
    }
    plan.push_back(std::move(tensor));
  }
  std::ranges::sort(plan, {}, &TensorPlan::name);
  return plan;
}

absl::StatusOr<int64_t> SegmentBytesFor(const ModelSpec& spec, bool fp8) {
  MOE_ASSIGN_OR_RETURN(const std::vector<TensorPlan> plan, PlanShapes(spec, fp8));
  return SegmentWriter::RequiredBytes(plan);
}

}  // namespace moestro
