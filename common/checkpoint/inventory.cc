#include "common/checkpoint/inventory.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/math.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

constexpr size_t kMaxListed = 10;
constexpr char kScaleSuffix[] = "_scale_inv";

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

std::vector<DType> AllowedDTypes(model::TensorRole role) {
  if (model::IsLinear(role)) return {DType::kF8E4M3, DType::kBF16};
  if (role == model::TensorRole::kEmbedding || role == model::TensorRole::kHead) return {DType::kBF16};
  if (role == model::TensorRole::kRouterBias) return {DType::kF32};  // BF16 would change the order of its experts
  return {DType::kBF16, DType::kF32};                                // norms, routers and biases
}

bool IsAllowed(model::TensorRole role, std::optional<DType> dtype) {
  const std::vector<DType> allowed = AllowedDTypes(role);
  return dtype && std::ranges::find(allowed, *dtype) != allowed.end();
}

std::string AllowedNames(model::TensorRole role) {
  return absl::StrJoin(AllowedDTypes(role), " or ",
                       [](std::string* out, DType dtype) { out->append(DTypeName(dtype)); });
}

// The layer of "model.layers.<n>.…", or -1.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return -1;
  int64_t layer = -1;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, layer);
  return error == std::errc() && rest != end && *rest == '.' ? layer : -1;
}

class Inventory {
 public:
  Inventory(const Checkpoint& checkpoint, const weights::ModelSpec& spec) : checkpoint_(checkpoint), spec_(spec) {}

  absl::StatusOr<std::vector<InventoryItem>> Check(std::vector<std::string>* warnings) && {
    for (model::ModelTensor& expected : model::CheckpointTensors(spec_)) CheckTensor(std::move(expected));
    CheckRest(warnings);
    if (count_ == 0) return std::move(items_);
    const std::string more = count_ > listed_.size() ? absl::StrCat("; and ", count_ - listed_.size(), " more") : "";
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint_.dir(), ": ", count_, " problem(s) with the tensors: ", absl::StrJoin(listed_, "; "), more));
  }

 private:
  void Problem(std::string_view name, absl::string_view what, const TensorRef* ref = nullptr) {
    ++count_;
    if (listed_.size() >= kMaxListed) return;
    const std::string place = ref == nullptr ? "" : absl::StrCat(" (", checkpoint_.shards()[ref->shard].path(), ")");
    listed_.push_back(absl::StrCat(text::Quoted(name), place, ": ", what));
  }

  // As Find; also marks the tensor as expected.
  const TensorRef* Claim(const std::string& name) {
    const TensorRef* ref = checkpoint_.Find(name);
    if (ref != nullptr) claimed_.insert(ref->info);
    return ref;
  }

  void CheckTensor(model::ModelTensor expected) {
    const TensorRef* weight = Claim(expected.name);
    const std::string scale_name = absl::StrCat(expected.name, kScaleSuffix);
    if (weight == nullptr) {
      Claim(scale_name);  // report only one problem
      return Problem(expected.name, "missing");
    }
    InventoryItem item{std::move(expected), *weight, std::nullopt};
    if (!IsAllowed(item.expected.role, weight->info->dtype)) {
      Claim(scale_name);
      return Problem(item.expected.name,
                     absl::StrCat("dtype ", weight->info->dtype_name, ", expected ", AllowedNames(item.expected.role)),
                     weight);
    }
    const std::vector<int64_t> shape = item.expected.shape();
    if (weight->info->shape != shape) {
      Problem(item.expected.name,
              absl::StrCat("shape ", ShapeText(weight->info->shape), ", expected ", ShapeText(shape)), weight);
    }
    if (weight->info->dtype == DType::kF8E4M3) CheckScale(scale_name, &item);
    items_.push_back(std::move(item));
  }

  void CheckScale(const std::string& name, InventoryItem* item) {
    const TensorRef* scale = Claim(name);
    if (scale == nullptr) return Problem(name, "missing, but its weight is F8_E4M3");
    const std::vector<int64_t> shape = {CeilDiv(item->expected.rows, kScaleBlock),
                                        CeilDiv(item->expected.cols, kScaleBlock)};
    if (scale->info->dtype != DType::kF32) {
      Problem(name, absl::StrCat("dtype ", scale->info->dtype_name, ", expected F32"), scale);
    }
    if (scale->info->shape != shape) {
      Problem(name, absl::StrCat("shape ", ShapeText(scale->info->shape), ", expected ", ShapeText(shape)), scale);
    }
    // The K and V rows of a head are used separately, so each needs its own scales.
    const bool straddles = spec_.qk_nope_head_dim % kScaleBlock != 0 || spec_.v_head_dim % kScaleBlock != 0;
    if (straddles && item->expected.role == model::TensorRole::kLatentUp) {
      Problem(item->expected.name, "F8_E4M3 needs qk_nope_head_dim and v_head_dim that are multiples of 128; use BF16",
              &item->weight);
    }
    item->scale = *scale;
  }

  // Checks all tensors of the checkpoint that no expected tensor has claimed.
  void CheckRest(std::vector<std::string>* warnings) {
    std::vector<std::string_view> lone_scales, unknown;
    for (const auto& [name, ref] : checkpoint_.tensors()) {
      if (claimed_.contains(ref.info) || LayerOf(name) >= spec_.num_layers) continue;
      if (name.ends_with(".rotary_emb.inv_freq")) continue;
      (name.ends_with(kScaleSuffix) ? lone_scales : unknown).push_back(name);
    }
    std::sort(lone_scales.begin(), lone_scales.end());
    for (const std::string_view name : lone_scales) {
      Problem(name, "a scale without an F8_E4M3 weight", checkpoint_.Find(name));
    }
    if (unknown.empty() || warnings == nullptr) return;
    warnings->push_back(absl::StrCat(checkpoint_.dir(), ": ", unknown.size(),
                                     " tensor(s) that the model does not use are ignored, the first is ",
                                     text::Quoted(*std::min_element(unknown.begin(), unknown.end()))));
  }

  const Checkpoint& checkpoint_;
  const weights::ModelSpec& spec_;
  std::vector<InventoryItem> items_;
  absl::flat_hash_set<const TensorInfo*> claimed_;
  std::vector<std::string> listed_;
  size_t count_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<InventoryItem>> CheckInventory(const Checkpoint& checkpoint, const weights::ModelSpec& spec,
                                                          std::vector<std::string>* warnings) {
  return Inventory(checkpoint, spec).Check(warnings);
}

}  // namespace moestro::checkpoint
