#include "services/cli/model/make_model/tensor_plan.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/math.h"
#include "common/model/schema.h"
#include "services/cli/model/make_model/four_bits.h"

namespace moestro::cli {
namespace {

// A linear layer with gain g turns inputs of deviation 1 into outputs of deviation g: its weights have deviation g /
// sqrt(inputs). The gains keep the model well conditioned, so that engines with different rounding agree.
// Queries: attention scores then have a deviation of about 1.5 with the softmax scale of the preset's YaRN factor. So
// attention is neither uniform nor a copy of one position.
constexpr double kQueryGain = 0.6;
// Router logits spread the sigmoid over most of (0, 1) without saturating it.
constexpr double kRouterGain = 1.6;
// A block adds about half of the residual stream (deviation 1 at first) to it. So no block is idle, and none magnifies
// the rounding noise of earlier blocks. The four or eight weighted experts of a token add up to more than one MLP, and
// a swapped expert must not change everything.
constexpr double kAttentionOutGain = 0.6;
constexpr double kMlpDownGain = 0.65;
constexpr double kExpertDownGain = 0.4;
// Logits of deviation 3.5: the best token leads by about one, far above the rounding noise of BF16 activations.
constexpr double kHeadGain = 3.5;
// Around 0, of the final norm before a tied head: with weights of one sign, a token's own vector, which stays in the
// residual, would make the token its own successor.
constexpr double kTiedNormDeviation = 1;
// Of both signs, and large enough to change which experts are chosen. It widens the distances between scores while
// rounding noise stays the same. Small enough that every expert gets tokens: with 0.3 some get none.
constexpr double kBiasDeviation = 0.15;
// Beside outputs of deviation 1, enough for goldens to notice a bias that is missing or added after the rotation.
constexpr double kProjectionBiasDeviation = 0.5;
// Beside the scores of a hundred tokens, which deviate by about 1, a tenth of the weight.
constexpr double kSinkMean = 3;
constexpr double kNormDeviation = 0.1;  // around 1

// The gain of a linear layer.
double Gain(const weights::ModelSpec& spec, const model::ModelTensor& tensor) {
  switch (tensor.role) {
    case model::TensorRole::kQueries:  // grouped: scores deviate by about 1, with norms or without
      return spec.attention_kind() == weights::AttentionKind::kLatent ? kQueryGain : 1;
    case model::TensorRole::kOutput:
      if (tensor.part == model::TensorPart::kAttention) return kAttentionOutGain;
      return tensor.part == model::TensorPart::kExpert ? kExpertDownGain : kMlpDownGain;
    default:
      return 1;
  }
}

double Deviation(double gain, int64_t inputs) { return gain / std::sqrt(static_cast<double>(inputs)); }

class Planner {
 public:
  explicit Planner(const MadeModel& model) : model_(model) {}

  std::vector<PlannedTensor> Plan() && {
    for (const model::ModelTensor& tensor : model::CheckpointTensors(model_.spec)) Add(tensor);
    if (model_.mtp_layers > 0) PredictionLayer(model_.spec.num_layers);
    return std::move(tensors_);
  }

 private:
  PlannedTensor& Add(const std::string& name, DType dtype, std::vector<int64_t> shape, Recipe recipe, double deviation,
                     double mean = 0) {
    return tensors_.emplace_back(PlannedTensor{name, dtype, std::move(shape), recipe, name, mean, deviation});
  }
  PlannedTensor& Normal(const std::string& name, std::vector<int64_t> shape, double deviation, double mean = 0) {
    return Add(name, DType::kBF16, std::move(shape), Recipe::kNormal, deviation, mean);
  }

  void Add(const model::ModelTensor& tensor) {
    switch (tensor.role) {
      case model::TensorRole::kEmbedding:
        Normal(tensor.name, tensor.shape(), model_.spec.tied_head != 0 ? Deviation(kHeadGain, tensor.cols) : 1);
        break;
      case model::TensorRole::kHead:
        Normal(tensor.name, tensor.shape(), Deviation(kHeadGain, tensor.cols));
        break;
      case model::TensorRole::kNorm:
        if (model_.spec.tied_head != 0 && tensor.part == model::TensorPart::kModel) {
          Normal(tensor.name, tensor.shape(), kTiedNormDeviation);
        } else {
          Normal(tensor.name, tensor.shape(), kNormDeviation, 1);
        }
        break;
      case model::TensorRole::kRouter:
        Normal(tensor.name, tensor.shape(), Deviation(kRouterGain, tensor.cols));
        break;
      case model::TensorRole::kRouterBias:
        Add(tensor.name, DType::kF32, tensor.shape(), Recipe::kNormal, kBiasDeviation);
        break;
      case model::TensorRole::kBias:
        Normal(tensor.name, tensor.shape(), kProjectionBiasDeviation);
        break;
      case model::TensorRole::kSinks:
        Normal(tensor.name, tensor.shape(), 1, kSinkMean);
        break;
      default:
        Linear(tensor);
    }
  }

  // A weight of a routed expert as two tensors, or more.
  void FourBits(const model::ModelTensor& tensor, double deviation) {
    const bool int4 = model_.weights == kInt4Weights;
    const auto add = [&](const char* suffix, Recipe recipe, std::vector<int64_t> shape) {
      PlannedTensor& part = Add(absl::StrCat(tensor.name, suffix), DType::kBF16, std::move(shape), recipe, deviation);
      part.key = tensor.name;
      part.rows = tensor.rows;
      part.cols = tensor.cols;
    };
    const int64_t rows = tensor.rows, cols = tensor.cols, groups = cols / kFourBitGroup;
    if (model_.by_input()) {
      const bool awq = model_.weights == kAwqWeights;
      const auto add_by_input = [&](const char* end, DType dtype, Recipe recipe, std::vector<int64_t> shape) {
        const std::string module(absl::StripSuffix(tensor.name, "weight"));
        PlannedTensor& part = Add(module + end, dtype, std::move(shape), recipe, deviation);
        part.key = tensor.name;
        part.rows = rows;
        part.cols = cols;
      };
      if (awq) add_by_input("qweight", DType::kF32, Recipe::kAwqCodes, {cols, rows / 8});
      if (!awq) add_by_input("qweight", DType::kF32, Recipe::kGptqCodes, {cols / 8, rows});
      add_by_input("scales", DType::kF16, Recipe::kInputScales, {groups, rows});
      add_by_input("qzeros", DType::kF32, awq ? Recipe::kAwqZeros : Recipe::kGptqZeros, {groups, rows / 8});
      if (!awq) add_by_input("g_idx", DType::kF32, Recipe::kGroupOfInput, {cols});
      return;
    }
    if (model_.zero_points()) {
      add("_packed", Recipe::kInt4ZCodes, {rows, cols / 8});
      add("_scale", Recipe::kInt4ZScales, {rows, groups});
      tensors_.back().dtype = DType::kF16;
      add("_zero_point", Recipe::kInt4Zeros, {CeilDiv(rows, 8), groups});
      add("_shape", Recipe::kShape, {2});
      return;
    }
    add("_packed", int4 ? Recipe::kInt4Codes : Recipe::kMxfp4Codes, {tensor.rows, tensor.cols / (int4 ? 8 : 2)});
    add("_scale", int4 ? Recipe::kInt4Scales : Recipe::kMxfp4Scales, {tensor.rows, tensor.cols / kFourBitGroup});
    if (int4) add("_shape", Recipe::kShape, {2});
  }

  // As codes and a scale for each row.
  void EightBits(const model::ModelTensor& tensor, double deviation) {
    const DType scale_type = model_.weights == kInt8Weights ? DType::kBF16 : DType::kF32;
    PlannedTensor& codes = Add(tensor.name, scale_type, {tensor.rows, tensor.cols}, Recipe::kInt8Codes, deviation);
    codes.rows = tensor.rows;
    codes.cols = tensor.cols;
    PlannedTensor scales = codes;
    scales.name += "_scale";
    scales.shape = {tensor.rows, 1};
    scales.recipe = Recipe::kInt8Scales;
    tensors_.push_back(std::move(scales));
  }

  // A weight that the published checkpoint quantises.
  void Linear(const model::ModelTensor& tensor) {
    const double deviation = Deviation(Gain(model_.spec, tensor), tensor.shape()[1]);
    if (model_.four_bits() && tensor.part == model::TensorPart::kExpert) return FourBits(tensor, deviation);
    const bool ignored = tensor.role == model::TensorRole::kLatentUp && model_.weights == kInt8Weights;
    if (model_.int8() && !tensor.in_parts && !ignored) return EightBits(tensor, deviation);
    if (!model_.fp8() || tensor.in_parts) {
      Add(tensor.name, DType::kBF16, tensor.shape(), Recipe::kDequantised, deviation);
      return;
    }
    Add(tensor.name, DType::kF8E4M3, tensor.shape(), Recipe::kFp8Codes, deviation);
    Add(absl::StrCat(tensor.name, "_scale_inv"), DType::kF32,
        {CeilDiv(tensor.rows, kScaleBlock), CeilDiv(tensor.cols, kScaleBlock)}, Recipe::kBlockScales, deviation);
  }

  // The multi-token-prediction layer repeats embedding and head, as the published checkpoint does.
  void PredictionLayer(int64_t layer) {
    const int64_t hidden = model_.spec.hidden_size, rows = model_.spec.vocab_size;
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    Normal(prefix + "embed_tokens.weight", {rows, hidden}, 1).key = model::kEmbeddingName;
    Normal(prefix + "enorm.weight", {hidden}, kNormDeviation, 1);
    Normal(prefix + "hnorm.weight", {hidden}, kNormDeviation, 1);
    Normal(prefix + "eh_proj.weight", {hidden, 2 * hidden}, Deviation(1, 2 * hidden));
    for (const model::ModelTensor& tensor : model::CheckpointTensors(model_.spec, layer)) Add(tensor);
    Normal(prefix + "shared_head.norm.weight", {hidden}, kNormDeviation, 1);
    Normal(prefix + "shared_head.head.weight", {rows, hidden}, Deviation(kHeadGain, hidden)).key = model::kHeadName;
  }

  const MadeModel& model_;
  std::vector<PlannedTensor> tensors_;
};

}  // namespace

const char* PlannedTensor::dtype_name() const {
  switch (recipe) {
    case Recipe::kInt4Codes:
    case Recipe::kInt4ZCodes:
    case Recipe::kInt4Zeros:
    case Recipe::kAwqCodes:
    case Recipe::kGptqCodes:
    case Recipe::kAwqZeros:
    case Recipe::kGptqZeros:
    case Recipe::kGroupOfInput:
      return "I32";
    case Recipe::kMxfp4Codes:
    case Recipe::kMxfp4Scales:
      return "U8";
    case Recipe::kShape:
      return "I64";
    case Recipe::kInt8Codes:
      return "I8";
    default:
      return DTypeName(dtype);
  }
}

int64_t PlannedTensor::element_bytes() const {
  switch (recipe) {
    case Recipe::kInt4Codes:
    case Recipe::kInt4ZCodes:
    case Recipe::kInt4Zeros:
    case Recipe::kAwqCodes:
    case Recipe::kGptqCodes:
    case Recipe::kAwqZeros:
    case Recipe::kGptqZeros:
    case Recipe::kGroupOfInput:
      return 4;
    case Recipe::kMxfp4Codes:
    case Recipe::kMxfp4Scales:
    case Recipe::kInt8Codes:
      return 1;
    case Recipe::kShape:
      return 8;
    default:
      return DTypeBytes(dtype);
  }
}

int64_t PlannedTensor::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

std::vector<PlannedTensor> PlanTensors(const MadeModel& model) { return Planner(model).Plan(); }

}  // namespace moestro::cli
