#include "common/checkpoint/inventory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/math.h"
#include "common/checkpoint/quantization.h"
#include "common/checkpoint/tensor_lookup.h"
#include "common/checkpoint/two_tensors.h"
#include "common/tensor/block_format.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

constexpr size_t kMaxListed = 10;
constexpr char kScaleSuffix[] = "_scale_inv";
constexpr char kNotFourBits[] = "this weight must not have four bits; get the model with it in BF16";
constexpr char kNotEightBits[] = "this weight must not have eight bits; get the model with it in BF16";

// Of what is published. Blocks cannot be transposed; scale blocks can be, but no checkpoint needs that except for keys.
std::vector<DType> AllowedDTypes(model::TensorRole role, bool transposed) {
  if (model::IsWidened(role)) return {DType::kF32, DType::kBF16, DType::kF16};
  if (transposed) return {DType::kBF16, DType::kF16};
  std::vector<DType> allowed = {DType::kBF16, DType::kF16};
  if (model::IsLinear(role)) allowed.insert(allowed.begin(), DType::kF8E4M3);
  for (auto type = static_cast<uint32_t>(DType::kQ8_0); type <= static_cast<uint32_t>(kLastDType); ++type) {
    // The others have their scales in another tensor.
    if (!HasNibblesInOrder(static_cast<DType>(type))) allowed.push_back(static_cast<DType>(type));
  }
  return allowed;
}
// REQUIRES: AllowedDTypes has the published type.
DType SegmentDType(model::TensorRole role, const TensorInfo& info) {
  if (model::IsWidened(role)) return DType::kF32;
  const DType dtype = info.dtype.value_or(DType::kF32);
  // Codes whose scales change along a row of the transposed keys cannot be transposed, as one form of attention needs
  // the keys. Both forms have the same values.
  return role == model::TensorRole::kLatentUp && IsBlockFormat(dtype) ? DType::kF16 : dtype;
}

// What makes keys and values from a latent becomes F16, as it does from blocks: MXFP4 has no use for that.
bool MayBeTwoTensors(model::TensorRole role, const TwoTensors& form, const Quantization& quantization) {
  if (role == model::TensorRole::kLatentUp) return form.by_row || (!form.in_blocks && !quantization.int4.empty());
  return !model::IsWidened(role);
}

// Ends of names that no weight of the model has claimed, and what is wrong then.
constexpr std::pair<std::string_view, const char*> kLeftOver[] = {
    {kScaleSuffix, "a scale without an F8_E4M3 weight"},
    {".weight_scale", "a scale without a weight"},
    {"_proj_scales", "scales without a weight"},
    {".weight_packed", "codes beside the same weight in another form; keep one of them"},
    {"_proj_blocks", "codes beside the same weight in another form; keep one of them"},
    {".weight_zero_point",
     "zero points are supported beside codes of four bits only; get the model with symmetric ones"},
    {".qweight", "codes beside the same weight in another form; keep one of them"},
    {".qzeros", "zero points without a weight"},
    {".scales", "scales without a weight"},
    {".g_idx", "an order of inputs without a weight"},
    {".weight_g_idx", "an order of columns is not supported; get the model without it"},
};

// The greatest bias that is read, to see whether it is zero: that of 2M rows in F64.
constexpr int64_t kMaxBiasBytes = int64_t{16} << 20;

// The layer of "model.layers.<n>.…", or -1.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return -1;
  int64_t layer = -1;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, layer);
  return error == std::errc() && rest != end && *rest == '.' ? layer : -1;
}

// Null: not skipped on purpose. `name` is plain.
const char* SkippedGroup(std::string_view name, const weights::ModelSpec& spec) {
  if (LayerOf(name) >= spec.num_layers) return kPredictionGroup;
  if (name.ends_with(".rotary_emb.inv_freq")) return "rotary tables";
  if (name.starts_with("model.")) name.remove_prefix(std::string_view("model.").size());
  for (const std::string_view part :
       {"vision_tower.", "vision_model.", "visual.", "vision_embed_tokens.", "audio_tower.", "audio_model.",
        "mm_projector.", "multi_modal_projector.", "mlp1.", "image_newline"}) {
    if (name.starts_with(part)) return "images and sounds";
  }
  return nullptr;
}

// Of the whole tensor, whose shape may be in blocks, as place.row then is.
int64_t RowsBefore(const TensorPlace& place, const std::vector<int64_t>& shape) {
  return place.matrix * (shape.size() == 3 ? shape[1] : 0) + place.row;
}

class Inventory {
 public:
  Inventory(const Checkpoint& checkpoint, const weights::ModelSpec& spec, const Quantization& quantization)
      : checkpoint_(checkpoint), spec_(spec), quantization_(quantization), lookup_(checkpoint, spec.num_experts) {}

  absl::StatusOr<std::vector<InventoryItem>> Check(std::vector<std::string>* warnings,
                                                   std::vector<SkippedTensors>* skipped) && {
    for (const model::ModelTensor& tensor : model::SegmentTensors(spec_)) {
      if (!model::IsDerived(spec_, tensor)) CheckTensor(tensor);
    }
    CheckRest(warnings, skipped);
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

  // As Find; also marks the tensor as expected. `again`: whether it was before.
  const TensorRef* Claim(const std::string& name, bool* again = nullptr) {
    const TensorRef* ref = checkpoint_.Find(name);
    const bool inserted = ref != nullptr && claimed_.insert(ref->info).second;
    if (again != nullptr) *again = !inserted;
    return ref;
  }

  // A tensor with the parts of several expected ones is checked once.
  void CheckTensor(const model::ModelTensor& tensor) {
    const model::PublishedPart part = model::PublishedAs(spec_, tensor);
    TensorPlace place = lookup_.Find(tensor, part);
    if (IsCodesByRow(tensor.role, place)) place.two_tensors = &kByRow;
    if (place.two_tensors != nullptr) return CheckTwoTensors(tensor, part.name, place);
    if (tensor.role == model::TensorRole::kLatentUp && checkpoint_.Find(place.name) == nullptr) {
      if (CheckLatentHalves(tensor)) return;
    }
    bool again = false;
    const TensorRef* weight = Claim(place.name, &again);
    const std::string scale_name = absl::StrCat(place.name, kScaleSuffix);
    if (weight == nullptr) {
      Claim(scale_name);  // report only one problem
      Claim(absl::StrCat(place.name, kByRow.scales));
      return Problem(place.name, "missing");
    }
    if (!again && !CheckWeight(tensor.role, place, *weight)) {
      Claim(scale_name);
      return;
    }
    InventoryItem item{
        tensor, SegmentDType(tensor.role, *weight->info), *weight, std::nullopt, place.transposed, place.output_step};
    item.expected.name = part.name;
    item.weight.offset = RowsBefore(place, place.shape) * weight->info->BytesOf(place.shape.back()) +
                         weight->info->BytesOf(place.first_col);
    if (weight->info->dtype == DType::kF8E4M3) CheckScale(scale_name, place, again, &item);
    items_.push_back(std::move(item));
  }

  // I8 in the place of one tensor, whose scales are another.
  bool IsCodesByRow(model::TensorRole role, const TensorPlace& place) const {
    const TensorRef* const found = checkpoint_.Find(place.name);
    return found != nullptr && found->info->dtype == DType::kI8 && model::IsLinear(role) && !place.transposed;
  }

  void CheckTwoTensors(const model::ModelTensor& tensor, const std::string& family_name, const TensorPlace& place) {
    const TwoTensors& form = *place.two_tensors;
    const auto name_of = [&](const char* end) { return form.Name(place.name, end); };
    const std::string codes_name = name_of(form.codes), scales_name = name_of(form.scales);
    bool again = false;
    const TensorRef* const codes = Claim(codes_name, &again);
    const TensorRef* const scales = Claim(scales_name);
    const TensorRef* const zeros = form.zeros == nullptr ? nullptr : Claim(name_of(form.zeros));
    const TensorRef* const order = form.by_input ? Claim(name_of(kGroupOfInput)) : nullptr;
    Claim(absl::StrCat(place.name, kPackedShape));
    if (scales == nullptr) {
      if (!again) Problem(scales_name, absl::StrCat("missing, but there is ", text::Quoted(codes_name)));
      return;
    }
    if (!MayBeTwoTensors(tensor.role, form, quantization_)) {
      return Problem(codes_name, form.by_row ? kNotEightBits : kNotFourBits, codes);
    }
    if (form.by_row) RefuseStaticInputs(place.name);
    const auto info = [](const TensorRef* ref) { return ref == nullptr ? nullptr : ref->info; };
    TwoTensorsCheck check = checkpoint::CheckTwoTensors(
        form, place.shape, {info(codes), info(scales), info(zeros), info(order)}, quantization_);
    if (!check.problem.empty()) {
      const std::string name = check.end == nullptr ? codes_name : name_of(check.end);
      if (!again) Problem(name, check.problem, checkpoint_.Find(name));
      return;
    }
    const bool rounded = tensor.role == model::TensorRole::kLatentUp;
    if (rounded && check.dtype == DType::kMXFP4) return Problem(codes_name, kNotFourBits, codes);
    if (rounded && !form.by_row) check.dtype = check.group % 128 == 0 ? DType::kI4Z128 : DType::kI4Z32;  // the same
    if (rounded && !RowsOfHeadsAreWhole(form)) {
      return Problem(codes_name, "its heads have parts that are no multiples of 8 rows; get the model with it in BF16",
                     codes);
    }
    InventoryItem item{tensor, rounded ? DType::kF16 : check.dtype, *codes, *scales, false, place.output_step};
    item.expected.name = family_name;
    const int64_t first = RowsBefore(place, place.shape);
    if (HasZeroPoints(check.dtype)) {
      item.int4 = {check.dtype, tensor.rows, tensor.cols,
                   check.group, first,       form.by_input ? quantization_.by_input : ByInput::kNone,
                   {},          {}};
      if (zeros != nullptr) item.int4->zeros = *zeros;
      if (order != nullptr) item.int4->group_of_input = *order;
    }
    if (form.by_input) {
      if (first % 8 != 0 || tensor.rows % 8 != 0) {
        return Problem(codes_name, "parts of it are no multiples of 8 rows; get the model with this weight in BF16",
                       codes);
      }
    } else if (!item.int4) {
      const int64_t row_bytes = RowBytes(check.dtype, tensor.cols);
      const int64_t codes_bytes = form.by_row ? row_bytes : tensor.cols / 2;
      item.weight.offset = first * codes_bytes;
      item.scale->offset = first * (form.by_row ? scales->info->element_bytes() : row_bytes - codes_bytes);
    }
    items_.push_back(std::move(item));
  }

  // Keys and values are read apart, words of eight rows whole.
  bool RowsOfHeadsAreWhole(const TwoTensors& form) const {
    return !form.by_input || (spec_.qk_nope_head_dim % 8 == 0 && spec_.v_head_dim % 8 == 0);
  }

  // Keys and values of a latent may lie apart. False: they do not.
  bool CheckLatentHalves(const model::ModelTensor& tensor) {
    const std::string keys_name = absl::StrReplaceAll(tensor.name, {{".kv_b_proj.", ".k_b_proj."}});
    const std::string values_name = absl::StrReplaceAll(tensor.name, {{".kv_b_proj.", ".v_b_proj."}});
    const TensorRef* const keys = Claim(keys_name);
    const TensorRef* const values = Claim(values_name);
    if (keys == nullptr && values == nullptr) return false;
    if (keys == nullptr || values == nullptr) {
      Problem(keys == nullptr ? keys_name : values_name, "missing");
      return true;
    }
    const std::vector<int64_t> keys_shape = {spec_.num_heads * tensor.cols, spec_.qk_nope_head_dim};
    const std::vector<int64_t> values_shape = {spec_.num_heads * spec_.v_head_dim, tensor.cols};
    for (const auto& [name, ref, shape] :
         {std::tuple(keys_name, keys, keys_shape), std::tuple(values_name, values, values_shape)}) {
      if (!CheckWeight(tensor.role, {.name = name, .shape = shape}, *ref)) return true;
      if (ref->info->dtype != DType::kF8E4M3) continue;
      Problem(name, "F8_E4M3 is not supported for half of kv_b_proj", ref);
      return true;
    }
    const DType dtype = SegmentDType(tensor.role, *values->info);
    const bool alike = dtype == SegmentDType(tensor.role, *keys->info);
    InventoryItem item{tensor, alike ? dtype : DType::kF16, *values, std::nullopt};
    item.keys = *keys;
    items_.push_back(std::move(item));
    return true;
  }

  // A config need not tell of scales that all inputs of a weight share.
  void RefuseStaticInputs(std::string_view weight_name) {
    constexpr std::string_view kWeight = "weight";
    if (!weight_name.ends_with(kWeight)) return;
    weight_name.remove_suffix(kWeight.size());
    const std::string scale_name = std::string(weight_name) + "input_scale";
    bool again = false;
    const TensorRef* const scale = Claim(scale_name, &again);
    if (scale == nullptr || again) return;
    Problem(scale_name, "static scales of inputs are not supported; get the model with dynamic ones, by token", scale);
  }

  // False: it has another type.
  bool CheckWeight(model::TensorRole role, const TensorPlace& place, const TensorRef& weight) {
    const std::vector<DType> allowed = AllowedDTypes(role, place.transposed);
    const std::optional<DType> dtype = weight.info->dtype;
    if (!dtype || std::ranges::find(allowed, *dtype) == allowed.end()) {
      const auto append_name = [](std::string* out, DType type) { out->append(DTypeName(type)); };
      Problem(
          place.name,
          absl::StrCat("dtype ", weight.info->dtype_name, ", expected ", absl::StrJoin(allowed, " or ", append_name),
                       "; get the model with such weights, or save it so"),
          &weight);
      return false;
    }
    if (!HasWholeBlocks(*dtype, place.shape.back())) {
      Problem(place.name,
              absl::StrCat("rows of ", place.shape.back(), " numbers are no whole blocks of ", DTypeName(*dtype)),
              &weight);
      return false;
    }
    if (weight.info->shape != place.shape) {
      Problem(place.name, absl::StrCat("shape ", ShapeText(weight.info->shape), ", expected ", ShapeText(place.shape)),
              &weight);
    }
    return true;
  }

  void CheckScale(const std::string& name, const TensorPlace& place, bool again, InventoryItem* item) {
    const TensorRef* scale = Claim(name);
    if (again && scale == nullptr) return;
    if (scale == nullptr) return Problem(name, "missing, but its weight is F8_E4M3");
    std::vector<int64_t> shape = place.shape;  // of the last two dimensions, in blocks
    for (size_t i = shape.size() - 2; i < shape.size(); ++i) shape[i] = CeilDiv(shape[i], kScaleBlock);
    if (!again) CheckScaleTensor(name, place, shape, *scale, *item);
    item->scale = *scale;
    TensorPlace blocks = place;
    blocks.row /= kScaleBlock;  // CheckScaleTensor refuses rows within a block
    item->scale->offset = RowsBefore(blocks, shape) * shape.back() * scale->info->element_bytes();
  }

  void CheckScaleTensor(const std::string& name, const TensorPlace& place, const std::vector<int64_t>& shape,
                        const TensorRef& scale, const InventoryItem& item) {
    if (std::ranges::find(kScaleDTypes, scale.info->dtype_name) == std::end(kScaleDTypes)) {
      Problem(name, absl::StrCat("dtype ", scale.info->dtype_name, ", expected ", absl::StrJoin(kScaleDTypes, " or ")),
              &scale);
    }
    if (scale.info->shape != shape) {
      Problem(name, absl::StrCat("shape ", ShapeText(scale.info->shape), ", expected ", ShapeText(shape)), &scale);
    }
    // The K and V rows of a head are used separately, so each needs its own scales.
    const bool straddles = spec_.qk_nope_head_dim % kScaleBlock != 0 || spec_.v_head_dim % kScaleBlock != 0;
    if (straddles && item.expected.role == model::TensorRole::kLatentUp) {
      Problem(place.name, "F8_E4M3 needs qk_nope_head_dim and v_head_dim that are multiples of 128; use BF16",
              &item.weight);
    }
    const int64_t rows = item.expected.rows;
    if (rows != place.shape[place.shape.size() - 2] && rows % kScaleBlock != 0) {
      Problem(place.name, absl::StrCat("F8_E4M3 needs parts of a multiple of 128 rows, not ", rows, "; use BF16"),
              &item.weight);
    }
  }

  // Checks all tensors of the checkpoint that no expected tensor has claimed.
  void CheckRest(std::vector<std::string>* warnings, std::vector<SkippedTensors>* skipped) {
    std::map<std::string_view, const char*> left_over;
    std::vector<std::string_view> unknown;
    std::map<std::string_view, SkippedTensors> groups;
    for (const auto& [name, ref] : checkpoint_.tensors()) {
      if (claimed_.contains(ref.info)) continue;
      const auto* const known = std::ranges::find_if(
          kLeftOver, [name = name](const auto& left_over_end) { return name.ends_with(left_over_end.first); });
      if (const char* const group = SkippedGroup(lookup_.Plain(name), spec_); group != nullptr) {
        SkippedTensors& sum = groups[group];
        sum = {group, sum.tensors + 1, sum.bytes + ref.info->bytes};
      } else if (known != std::end(kLeftOver)) {
        left_over.emplace(name, known->second);
      } else if (IsBiasOfClaimed(name)) {
        constexpr char kGroup[] = "biases of zero";
        SkippedTensors& sum = groups[kGroup];
        sum = {kGroup, sum.tensors + 1, sum.bytes + ref.info->bytes};
        if (!IsZero(ref)) left_over.emplace(name, "a bias where this family has none; get the model without it");
      } else {
        unknown.push_back(name);
      }
    }
    if (skipped != nullptr) {
      for (auto& [name, group] : groups) skipped->push_back(std::move(group));
    }
    for (const auto& [name, what] : left_over) Problem(name, what, checkpoint_.Find(name));
    if (unknown.empty() || warnings == nullptr) return;
    warnings->push_back(absl::StrCat(checkpoint_.dir(), ": ", unknown.size(),
                                     " tensor(s) that the model does not use are ignored, the first is ",
                                     text::Quoted(*std::min_element(unknown.begin(), unknown.end()))));
  }

  bool IsBiasOfClaimed(std::string_view name) const {
    constexpr std::string_view kBias = ".bias";
    if (!name.ends_with(kBias)) return false;
    const std::string stem(name.substr(0, name.size() - kBias.size()));
    return std::ranges::any_of(std::array{".weight", ".weight_packed", ".qweight"}, [&](const char* end) {
      const TensorRef* const weight = checkpoint_.Find(stem + end);
      return weight != nullptr && claimed_.contains(weight->info);
    });
  }

  // False also if it cannot be read. GPTQ's tools write a bias of zeros for every layer.
  bool IsZero(const TensorRef& ref) const {
    if (ref.info->bytes > kMaxBiasBytes) return false;
    std::string bytes(ref.info->bytes, '\1');
    const absl::Status read =
        checkpoint_.shards()[ref.shard].ReadAt(ref.info->file_offset, bytes.data(), std::ssize(bytes));
    return read.ok() && std::ranges::all_of(bytes, [](char byte) { return byte == 0; });
  }

  const Checkpoint& checkpoint_;
  const weights::ModelSpec& spec_;
  const Quantization& quantization_;
  const TensorLookup lookup_;
  std::vector<InventoryItem> items_;
  absl::flat_hash_set<const TensorInfo*> claimed_;
  std::vector<std::string> listed_;
  size_t count_ = 0;
};

}  // namespace

int64_t InventoryItem::bytes() const {
  if (keys) return keys->info->bytes + weight.info->bytes;
  if (int4) {
    const int64_t groups = expected.cols / int4->group;
    const int64_t scales = expected.rows * groups * 2, zeros = int4->zeros ? CeilDiv(expected.rows, 8) * groups * 4 : 0;
    return expected.rows * expected.cols / 2 + scales + zeros;
  }
  if (IsBlockFormat(dtype)) return expected.rows * RowBytes(dtype, expected.cols);
  const int64_t blocks = weight.info->dtype == DType::kI8
                             ? expected.rows
                             : CeilDiv(expected.rows, kScaleBlock) * CeilDiv(expected.cols, kScaleBlock);
  return expected.rows * weight.info->BytesOf(expected.cols) + (scale ? blocks * scale->info->element_bytes() : 0);
}

absl::StatusOr<std::vector<InventoryItem>> CheckInventory(const Checkpoint& checkpoint, const weights::ModelSpec& spec,
                                                          std::vector<std::string>* warnings,
                                                          std::vector<SkippedTensors>* skipped) {
  MOE_ASSIGN_OR_RETURN(const Quantization quantization, ParseQuantization(checkpoint.documents().config_json));
  return Inventory(checkpoint, spec, quantization).Check(warnings, skipped);
}

}  // namespace moestro::checkpoint
