#include "tests/support/synthetic_segment.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/model/schema.h"
#include "common/tensor/block_rows.h"
#include "common/tensor/pack.h"
#include "common/weights/checksum.h"
#include "common/weights/segment_writer.h"
#include "tests/support/random_blocks.h"

namespace moestro {

using weights::TensorPlan;

namespace {

// Row-major codes of a linear layer, kept so that the transposed copy has the same numbers.
struct Codes {
  std::vector<uint16_t> values;  // BF16 or F16 bits, or E4M3 codes
  std::vector<float> scales;
};

const std::string kTransposed = "kv_b_proj.key_transposed";
const std::string kKvB = "kv_b_proj.weight";

class Builder {
 public:
  explicit Builder(const SyntheticOptions& options) : options_(options), spec_(options.spec), random_(options.seed) {
    std::normal_distribution<double> normal;
    for (double& value : normals_) value = normal(random_);
  }

  SyntheticSegment Build() {
    Describe();
    std::vector<TensorPlan> plan;
    for (const auto& [name, tensor] : tensors_) {
      if (!options_.omitted.contains(name)) plan.push_back(tensor);
    }
    SyntheticSegment result;
    result.memory = AlignedMemory(weights::SegmentWriter::RequiredBytes(plan));
    auto writer = weights::SegmentWriter::CreateInMemory(result.memory.data(), result.memory.size(), 1,
                                                         std::string(32, '0'), spec_, plan);
    MOE_CHECK(writer.ok());
    for (size_t i = 0; i < plan.size(); ++i) {
      Fill(plan[i], (*writer)->data(i), (*writer)->scales(i), (*writer)->exceptions(i));
      (*writer)->SetChecksum(i, weights::TensorChecksum((*writer)->directory()[i], result.memory.data()));
    }
    MOE_CHECK((*writer)->Finish().ok());
    auto segment = weights::WeightSegment::FromMemory(result.memory.data(), result.memory.size());
    MOE_CHECK(segment.ok());
    result.segment = std::move(*segment);
    return result;
  }

 private:
  // Lays out the model as the weight store does.
  void Describe() {
    const DType linear = options_.type.value_or(options_.fp8 ? DType::kF8E4M3 : DType::kBF16);
    const DType other = options_.type == DType::kI8 ? DType::kBF16 : options_.type.value_or(DType::kBF16);
    for (const model::ModelTensor& t : model::SegmentTensors(spec_)) {
      const bool is_embedding = t.role == model::TensorRole::kEmbedding;
      const bool packed = model::IsLinear(t.role) || t.role == model::TensorRole::kHead;
      DType dtype = model::IsLinear(t.role) ? linear : packed || is_embedding ? other : DType::kF32;
      if (!options_.mixture.empty() && dtype != DType::kF32) dtype = NextOfMixture(t.name);
      const bool of_latents = t.role == model::TensorRole::kLatentUp || t.role == model::TensorRole::kKeyUpTransposed;
      if (of_latents && (options_.type || !options_.mixture.empty())) dtype = DType::kBF16;
      if (t.part == model::TensorPart::kExpert && packed) dtype = options_.expert_type.value_or(dtype);
      tensors_[t.name] = {t.name, dtype,  packed ? weights::TensorLayout::kPacked : weights::TensorLayout::kRowMajor,
                          t.rows, t.cols, weights::HasScales(dtype)};
    }
  }

  DType NextOfMixture(const std::string& name) {
    const size_t experts = name.find(".experts.");
    const std::string kind =
        experts == std::string::npos ? name : name.substr(0, experts) + name.substr(name.rfind('.', name.size() - 8));
    return mixture_.emplace(kind, options_.mixture[mixture_.size() % options_.mixture.size()]).first->second;
  }

  double Normal(double deviation) { return deviation * normals_[random_() % normals_.size()]; }

  // The deviation for which unit inputs give outputs of deviation 1 (3.5 for the head: distinct logits).
  static double Deviation(const TensorPlan& tensor) {
    if (tensor.name == "model.embed_tokens.weight") return 1;
    return (tensor.name == "lm_head.weight" ? 3.5 : 1) / std::sqrt(static_cast<double>(tensor.cols));
  }

  void Fill(const TensorPlan& tensor, uint8_t* data, float* scales, uint32_t* exceptions) {
    if (IsBlockFormat(tensor.dtype)) {
      FillBlocks(tensor, data);
    } else if (tensor.dtype == DType::kI8) {
      FillInt8(tensor, data, scales, reinterpret_cast<int32_t*>(exceptions));
    } else if (tensor.layout == weights::TensorLayout::kPacked) {
      if (tensor.name.ends_with(kTransposed)) {
        MakeKvB(tensor.name.substr(0, tensor.name.size() - kTransposed.size()) + kKvB);
        Pack(tensor, TransposedKeys(), data, scales, exceptions);
      } else if (tensor.name.ends_with(kKvB)) {
        MakeKvB(tensor.name);
        Pack(tensor, kv_b_, data, scales, exceptions);
      } else {
        Codes codes = Random(tensor);
        if (tensor.name == "lm_head.weight") RepeatRowBeforeNan(tensor, codes);
        Pack(tensor, codes, data, scales, exceptions);
      }
    } else if (tensor.dtype != DType::kF32) {
      FillEmbedding(tensor, data);
    } else {
      FillFloats(tensor, reinterpret_cast<float*>(data));
    }
  }

  // Random codes, and scales that give weights about the deviation.
  void FillBlocks(const TensorPlan& tensor, uint8_t* data) {
    const int64_t row_bytes = RowBytes(tensor.dtype, tensor.cols);
    std::vector<float> sample(static_cast<size_t>(tensor.cols));
    const std::vector<uint8_t> unit = testing::RandomBlocks(tensor.dtype, 1, tensor.cols, 1, 1);
    DequantizeRow(tensor.dtype, unit.data(), tensor.cols, sample.data());
    double squares = 0;
    for (const float value : sample) squares += double{value} * value;
    const double deviation = std::sqrt(squares / static_cast<double>(tensor.cols));
    const auto scale = static_cast<float>(Deviation(tensor) / deviation);
    const std::vector<uint8_t> rows =
        testing::RandomBlocks(tensor.dtype, tensor.rows, tensor.cols, static_cast<uint32_t>(random_()), scale);
    if (tensor.layout == weights::TensorLayout::kRowMajor) {
      std::ranges::copy(rows, data);
      return;
    }
    for (int64_t row = 0; row < tensor.rows; row += kRowGroup) {
      PackBlockRows(tensor.dtype, rows.data() + row * row_bytes, row_bytes, std::min(kRowGroup, tensor.rows - row), 0,
                    tensor.cols, data + PackedBytes(tensor.dtype, row, tensor.cols));
    }
  }

  // Random codes, and a scale of its own for each row.
  void FillInt8(const TensorPlan& tensor, uint8_t* data, float* scales, int32_t* compensation) {
    std::vector<uint8_t> codes(static_cast<size_t>(tensor.rows * tensor.cols));
    for (uint8_t& code : codes) code = static_cast<uint8_t>(static_cast<int64_t>(random_() % 255) - 127);
    std::uniform_real_distribution<double> spread(0.75, 1.25);
    const double scale = Deviation(tensor) / (127 / std::sqrt(3.0));
    for (int64_t row = 0; row < tensor.rows; ++row) scales[row] = static_cast<float>(scale * spread(random_));
    for (int64_t row = 0; row < tensor.rows; row += kRowGroup) {
      uint8_t* const group = data + PackedBytes(DType::kI8, row, tensor.cols);
      PackRows(DType::kI8, &codes[static_cast<size_t>(row * tensor.cols)], tensor.cols,
               std::min(kRowGroup, tensor.rows - row), tensor.cols, group);
      FindCompensation(group, tensor.cols, compensation + row);
    }
  }

  // The matrix and its transposed key half share their codes; they are adjacent in the directory.
  void MakeKvB(const std::string& name) {
    if (name != kv_b_name_) kv_b_ = Random(tensors_.at(name));
    kv_b_name_ = name;
  }

  void FillEmbedding(const TensorPlan& tensor, uint8_t* data) {
    const Codes codes = Random(tensor);
    std::memcpy(data, codes.values.data(), codes.values.size() * sizeof(uint16_t));
    if (options_.nan_token >= 0) {
      const std::vector<uint16_t> nan(tensor.cols, 0x7fc0);
      std::memcpy(data + options_.nan_token * tensor.cols * 2, nan.data(), nan.size() * sizeof(uint16_t));
    }
  }

  void RepeatRowBeforeNan(const TensorPlan& tensor, Codes& codes) const {
    if (options_.nan_token < 0) return;
    MOE_CHECK(options_.nan_token > 0);
    const auto begin = codes.values.begin() + options_.nan_token * tensor.cols;
    std::copy(begin - tensor.cols, begin, begin);
  }

  void FillFloats(const TensorPlan& tensor, float* values) {
    const int64_t count = tensor.rows * tensor.cols;
    const bool bias = tensor.name.ends_with("e_score_correction_bias");
    const bool projection_bias = tensor.name.ends_with("_proj.bias") || tensor.name.ends_with("gate.bias");
    const bool sinks = tensor.name.ends_with("sinks");
    const bool router = tensor.name.ends_with("gate.weight");
    for (int64_t i = 0; i < count; ++i) {
      if (bias) {
        // Distinct multiples of 3 for up to 8 experts, shuffled; scores are between 0 and 1.
        values[i] = static_cast<float>(options_.decisive_biases ? 3 * (5 * i % 8) : Normal(0.1));
      } else if (projection_bias) {
        values[i] = static_cast<float>(Normal(0.5));
      } else if (sinks) {
        values[i] = static_cast<float>(2 + Normal(1));
      } else {
        values[i] = static_cast<float>(router ? Normal(1.5 * Deviation(tensor)) : 1 + Normal(0.1));
      }
    }
  }

  Codes Random(const TensorPlan& tensor) {
    Codes codes;
    const double deviation = Deviation(tensor);
    const int64_t blocks = CeilDiv(tensor.cols, kScaleBlock);
    if (tensor.has_scales) {
      // Codes then have a deviation of about 16, which uses most of the format's range; blocks differ.
      std::uniform_real_distribution<double> spread(0.75, 1.25);
      codes.scales.resize(CeilDiv(tensor.rows, kScaleBlock) * blocks);
      for (float& scale : codes.scales) scale = static_cast<float>(deviation / 16 * spread(random_));
    }
    for (int64_t i = 0; i < tensor.rows * tensor.cols; ++i) {
      if (tensor.dtype == DType::kF16) {
        codes.values.push_back(std::bit_cast<uint16_t>(static_cast<_Float16>(Normal(deviation))));
        continue;
      }
      codes.values.push_back(tensor.has_scales ? ToE4M3(static_cast<float>(Normal(16)))
                                               : ToBf16(static_cast<float>(Normal(deviation))));
    }
    return codes;
  }

  // [heads * kv_lora_rank, qk_nope_head_dim], from the first qk_nope_head_dim rows of each head of kv_b_proj.
  Codes TransposedKeys() const {
    const int64_t nope = spec_.qk_nope_head_dim;
    const int64_t latent = spec_.kv_lora_rank;
    const int64_t head_rows = nope + spec_.v_head_dim;
    Codes codes;
    for (int64_t row = 0; row < spec_.num_heads * latent; ++row) {
      for (int64_t col = 0; col < nope; ++col) {
        codes.values.push_back(kv_b_.values[(row / latent * head_rows + col) * latent + row % latent]);
      }
    }
    if (kv_b_.scales.empty()) return codes;
    const int64_t source_blocks = latent / kScaleBlock;
    for (int64_t row = 0; row < spec_.num_heads * source_blocks; ++row) {
      for (int64_t col = 0; col < nope / kScaleBlock; ++col) {
        const int64_t source_row = row / source_blocks * (head_rows / kScaleBlock) + col;
        codes.scales.push_back(kv_b_.scales[source_row * source_blocks + row % source_blocks]);
      }
    }
    return codes;
  }

  static void Pack(const TensorPlan& tensor, const Codes& codes, uint8_t* data, float* scales, uint32_t* exceptions) {
    for (int64_t row = 0; row < tensor.rows; ++row) {
      for (int64_t col = 0; col < tensor.cols; ++col) {
        std::memcpy(data + PackedOffset(tensor.dtype, tensor.cols, row, col), &codes.values[row * tensor.cols + col],
                    DTypeBytes(tensor.dtype));
      }
    }
    std::copy(codes.scales.begin(), codes.scales.end(), scales);
    if (tensor.dtype != DType::kF8E4M3) return;
    for (int64_t row = 0; row < tensor.rows; row += kRowGroup) {
      FindExceptions(data + PackedBytes(tensor.dtype, row, tensor.cols), tensor.cols,
                     exceptions + ExceptionWords(row, tensor.cols));
    }
  }

  const SyntheticOptions& options_;
  const weights::ModelSpec& spec_;
  std::mt19937_64 random_;
  std::array<double, 65536> normals_;  // drawing from these is faster than generating new ones
  std::map<std::string, TensorPlan> tensors_;
  std::map<std::string, DType> mixture_;  // of tensors, the experts of a layer being one
  std::string kv_b_name_;
  Codes kv_b_;  // codes of the tensor kv_b_name_
};

}  // namespace

SyntheticSegment MakeSyntheticSegment(const SyntheticOptions& options) {
  return std::make_unique<Builder>(options)->Build();  // too large for the stack
}

weights::ModelSpec SmallSpec() {
  weights::ModelSpec spec;
  std::strcpy(spec.family, "deepseek_v3");
  spec.hidden_size = 160;
  spec.num_layers = 3;
  spec.num_heads = 3;
  spec.q_lora_rank = 96;
  spec.kv_lora_rank = 128;
  spec.qk_nope_head_dim = 128;
  spec.qk_rope_head_dim = 32;
  spec.v_head_dim = 128;
  spec.intermediate_size = 200;
  spec.moe_intermediate_size = 72;
  spec.num_experts = 8;
  spec.experts_per_token = 3;
  spec.num_shared_experts = 1;
  spec.first_dense_layers = 1;
  spec.num_expert_groups = 4;
  spec.experts_topk_groups = 2;
  spec.vocab_size = 210;
  spec.token_count = 200;
  spec.max_position_embeddings = 4096;
  spec.routed_scaling_factor = 2.5;
  spec.rope_theta = 10000;
  spec.yarn.enabled = 1;
  spec.yarn.factor = 40;
  spec.yarn.mscale = 1;
  spec.yarn.mscale_all_dim = 1;
  spec.yarn.original_max_position_embeddings = 128;
  return spec;
}

weights::ModelSpec SmallGroupedSpec() {
  weights::ModelSpec spec = SmallSpec();
  std::strcpy(spec.family, "qwen3_moe");
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.q_lora_rank = 0;
  spec.kv_lora_rank = 0;
  spec.qk_nope_head_dim = 0;
  spec.qk_rope_head_dim = 64;
  spec.v_head_dim = 64;
  spec.first_dense_layers = 0;
  spec.intermediate_size = 0;
  spec.num_shared_experts = 0;
  spec.num_expert_groups = 1;
  spec.experts_topk_groups = 1;
  spec.softmax_router = 1;
  spec.routed_scaling_factor = 1;
  spec.yarn.mscale = 0;
  spec.yarn.mscale_all_dim = 0;
  return spec;
}

weights::ModelSpec SmallMixedSpec() {
  weights::ModelSpec spec = SmallSpec();
  spec.num_layers = 5;
  spec.dense_layers[0] = 1 << 2 | 1 << 4;
  return spec;
}

weights::ModelSpec SmallGatedSpec() {
  weights::ModelSpec spec = SmallSpec();
  spec.shared_expert_width = 184;
  spec.shared_expert_gate = 1;
  return spec;
}

std::vector<GroupedForm> GroupedForms(int64_t head_dim) {
  weights::ModelSpec spec = SmallGroupedSpec();
  spec.qk_rope_head_dim = spec.v_head_dim = head_dim;
  spec.num_experts = spec.experts_per_token;
  spec.num_layers = 2;
  std::vector<GroupedForm> forms = {{"BiasesAndPartialRotation", spec},
                                    {"NormsOfAllHeads", spec},
                                    {"Llama3Rotation", spec},
                                    {"WindowsAndSinks", spec}};
  forms[0].spec.qkv_biases = 1;
  forms[0].spec.rotary_dims = head_dim / 2;
  forms[0].spec.yarn = {};
  forms[1].spec.norms_of_all_heads = 1;
  forms[1].spec.rms_norm_eps = 1e-2;  // large enough to see in the norms
  forms[2].spec.heads_without_norms = 1;
  forms[2].spec.llama3_rope = 1;
  forms[2].spec.yarn = {.factor = 8, .beta_fast = 4, .beta_slow = 1, .original_max_position_embeddings = 128};
  // A window that ends within a block, in the first layer only.
  forms[3].spec.heads_without_norms = 1;
  forms[3].spec.qkv_biases = forms[3].spec.output_bias = forms[3].spec.attention_sinks = 1;
  forms[3].spec.sliding_window = 37;
  forms[3].spec.windowed_layers[0] = 1;
  forms[3].spec.yarn_between_pairs = 1;
  forms.push_back(forms[3]);
  forms[4].name = "ExpertsWithBiasesAndAClamp";
  forms[4].spec.router_bias = forms[4].spec.expert_biases = 1;
  forms[4].spec.swiglu_limit = 1.25;  // that numbers reach
  forms[4].spec.swiglu_alpha = 1.702;
  return forms;
}

std::vector<TypedModel> TypedModels() {
  weights::ModelSpec latents = SmallSpec();  // blocks of 32, and packed blocks that are not full
  latents.num_layers = 2;
  latents.moe_intermediate_size = 96;
  latents.intermediate_size = 224;
  weights::ModelSpec grouped = SmallGroupedSpec();
  grouped.num_layers = 2;
  grouped.moe_intermediate_size = 96;
  weights::ModelSpec clamped = GroupedForms().back().spec;
  clamped.num_experts = 8;
  clamped.moe_intermediate_size = 96;
  weights::ModelSpec wide = grouped;  // blocks of 256
  wide.hidden_size = wide.moe_intermediate_size = 256;
  wide.num_experts = 4;
  weights::ModelSpec wide_latents = latents;
  wide_latents.num_heads = 2;
  wide_latents.hidden_size = wide_latents.moe_intermediate_size = wide_latents.q_lora_rank = 256;
  wide_latents.intermediate_size = 512;
  wide_latents.num_experts = 4;
  wide_latents.num_expert_groups = wide_latents.experts_topk_groups = 1;
  return {
      {"F16", {.spec = grouped, .type = DType::kF16}},
      {"Q8_0", {.spec = latents, .type = DType::kQ8_0}},
      {"Q4_0", {.spec = grouped, .type = DType::kQ4_0}},
      {"Q5_0", {.spec = grouped, .type = DType::kQ5_0}},
      {"Q4_1", {.spec = grouped, .type = DType::kQ4_1}},
      {"Q5_1", {.spec = grouped, .type = DType::kQ5_1}},
      {"Q4_K", {.spec = wide, .type = DType::kQ4K}},
      {"Q5_K", {.spec = wide, .type = DType::kQ5K}},
      {"Q6_K", {.spec = wide, .type = DType::kQ6K}},
      {"TypesOfGguf",
       {.spec = wide_latents,
        .mixture = {DType::kQ4K, DType::kQ6K, DType::kQ8_0, DType::kQ5K, DType::kF16, DType::kQ5_0, DType::kQ4_0,
                    DType::kMXFP4, DType::kBF16, DType::kQ4_1, DType::kQ5_1}}},
      {"Int8", {.spec = latents, .type = DType::kI8}},
      {"Int8Grouped", {.spec = grouped, .type = DType::kI8}},
      {"Int4", {.spec = latents, .fp8 = false, .expert_type = DType::kI4G32}},
      {"Int4BesideFp8", {.spec = grouped, .expert_type = DType::kI4G32}},
      {"Int4By128", {.spec = wide, .type = DType::kI4G128}},
      {"Int4WithZeroPoints", {.spec = wide, .mixture = {DType::kI4Z32, DType::kI4Z128}}},
      {"Mxfp4", {.spec = latents, .type = DType::kMXFP4}},
      {"Mxfp4Experts", {.spec = clamped, .fp8 = false, .expert_type = DType::kMXFP4}},
  };
}

weights::ModelSpec BareSpec() {
  weights::ModelSpec spec = SmallSpec();
  spec.num_shared_experts = 0;
  spec.q_lora_rank = 0;
  spec.first_dense_layers = 2;
  return spec;
}

}  // namespace moestro
