#include "services/weight_store/checkpoint/inventory.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/math.h"
#include "services/weight_store/checkpoint/quoted.h"

namespace moestro {
namespace {

using Kind = ExpectedTensor::Kind;

constexpr size_t kMaxListed = 10;
constexpr char kScaleSuffix[] = "_scale_inv";

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

const char* AllowedDTypes(Kind kind) {
  switch (kind) {
    case Kind::kLinear:
      return "F8_E4M3 or BF16";
    case Kind::kNorm:
    case Kind::kRouter:
      return "BF16 or F32";
    case Kind::kEmbedding:
      return "BF16";
    case Kind::kBias:
      return "F32";
  }
  return "";
}

bool IsAllowed(Kind kind, std::optional<DType> dtype) {
  if (!dtype) return false;
  switch (kind) {
    case Kind::kLinear:
      return *dtype == DType::kF8E4M3 || *dtype == DType::kBF16;
    case Kind::kNorm:
    case Kind::kRouter:
      return *dtype == DType::kBF16 || *dtype == DType::kF32;
    case Kind::kEmbedding:
      return *dtype == DType::kBF16;
    case Kind::kBias:
      return *dtype == DType::kF32;
  }
  return false;
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
  Inventory(const Checkpoint& checkpoint, const ModelSpec& spec) : checkpoint_(checkpoint), spec_(spec) {}

  absl::StatusOr<std::vector<InventoryItem>> Check(std::vector<std::string>* warnings) && {
    for (ExpectedTensor& expected : ExpectedTensors(spec_)) CheckTensor(std::move(expected));
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
    listed_.push_back(absl::StrCat(Quoted(name), place, ": ", what));
  }

  // Find, and the tensor is no longer one of the rest.
  const TensorRef* Claim(const std::string& name) {
    const TensorRef* ref = checkpoint_.Find(name);
    if (ref != nullptr) claimed_.insert(ref->info);
    return ref;
  }

  void CheckTensor(ExpectedTensor expected) {
    const TensorRef* weight = Claim(expected.name);
    const std::string scale_name = absl::StrCat(expected.name, kScaleSuffix);
    if (weight == nullptr) {
      Claim(scale_name);  // one problem is enough
      return Problem(expected.name, "missing");
    }
    InventoryItem item{std::move(expected), *weight, std::nullopt};
    if (!IsAllowed(item.expected.kind, weight->info->dtype)) {
      Claim(scale_name);
      return Problem(item.expected.name,
                     absl::StrCat("dtype ", weight->info->dtype_name, ", expected ", AllowedDTypes(item.expected.kind)),
                     weight);
    }
    if (weight->info->shape != item.expected.shape) {
      Problem(item.expected.name,
              absl::StrCat("shape ", ShapeText(weight->info->shape), ", expected ", ShapeText(item.expected.shape)),
              weight);
    }
    if (weight->info->dtype == DType::kF8E4M3) CheckScale(scale_name, &item);
    items_.push_back(std::move(item));
  }

  void CheckScale(const std::string& name, InventoryItem* item) {
    const TensorRef* scale = Claim(name);
    if (scale == nullptr) return Problem(name, "missing, but its weight is F8_E4M3");
    const std::vector<int64_t> shape = {CeilDiv(item->expected.shape[0], kScaleBlock),
                                        CeilDiv(item->expected.shape[1], kScaleBlock)};
    if (scale->info->dtype != DType::kF32) {
      Problem(name, absl::StrCat("dtype ", scale->info->dtype_name, ", expected F32"), scale);
    }
    if (scale->info->shape != shape) {
      Problem(name, absl::StrCat("shape ", ShapeText(scale->info->shape), ", expected ", ShapeText(shape)), scale);
    }
    // The K and the V rows of a head are used apart, so each must own its scales.
    const bool straddles = spec_.qk_nope_head_dim % kScaleBlock != 0 || spec_.v_head_dim % kScaleBlock != 0;
    if (straddles && item->expected.name.ends_with(".kv_b_proj.weight")) {
      Problem(item->expected.name, "F8_E4M3 needs qk_nope_head_dim and v_head_dim that are multiples of 128; use BF16",
              &item->weight);
    }
    item->scale = *scale;
  }

  // Everything in the checkpoint that no expected tensor has claimed.
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
                                     Quoted(*std::min_element(unknown.begin(), unknown.end()))));
  }

  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  std::vector<InventoryItem> items_;
  absl::flat_hash_set<const TensorInfo*> claimed_;
  std::vector<std::string> listed_;
  size_t count_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<InventoryItem>> CheckInventory(const Checkpoint& checkpoint, const ModelSpec& spec,
                                                          std::vector<std::string>* warnings) {
  return Inventory(checkpoint, spec).Check(warnings);
}

}  // namespace moestro
