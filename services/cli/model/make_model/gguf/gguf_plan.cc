#include "services/cli/model/make_model/gguf/gguf_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <numbers>
#include <numeric>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/model/schema.h"
#include "common/tensor/block_format.h"
#include "services/cli/model/make_model/gguf/gguf_metadata.h"
#include "services/cli/model/make_model/gguf/round_row.h"
#include "services/cli/model/make_model/tensor_values.h"

namespace moestro::cli {
namespace {

constexpr uint32_t kVersion = 3;

// A --weights of these files.
struct FileType {
  std::string_view weights;
  int64_t number;  // general.file_type
  DType type;      // of most matrices
};
constexpr std::string_view kQ4KM = "q4_k_m";
constexpr FileType kFileTypes[] = {
    {"bf16", 32, DType::kBF16}, {"f16", 1, DType::kF16},   {"q8_0", 7, DType::kQ8_0},        {"q6_k", 18, DType::kQ6K},
    {kQ4KM, 15, DType::kQ4K},   {"q4_0", 2, DType::kQ4_0}, {kMxfp4Weights, 38, DType::kBF16}};

const FileType* FindFileType(std::string_view weights) {
  const auto* const found = std::ranges::find(kFileTypes, weights, &FileType::weights);
  return found == std::end(kFileTypes) ? nullptr : found;
}

// ggml's number of a type.
uint32_t TypeNumber(DType type) {
  switch (type) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ5_0:
      return 6;
    case DType::kQ8_0:
      return 8;
    case DType::kQ4K:
      return 12;
    case DType::kQ5K:
      return 13;
    case DType::kQ6K:
      return 14;
    case DType::kMXFP4:
      return 39;
    default:
      MOE_CHECK(type == DType::kBF16);
      return 30;
  }
}

using Names = std::pair<std::string_view, std::string_view>;  // of the segment, of the file
constexpr Names kModelNames[] = {{model::kEmbeddingName, "token_embd.weight"},
                                 {"model.norm.weight", "output_norm.weight"},
                                 {model::kHeadName, "output.weight"}};
constexpr Names kLayerNames[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"self_attn.q_a_proj.weight", "attn_q_a.weight"},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight"},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.o_proj.bias", "attn_output.bias"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.gate.bias", "ffn_gate_inp.bias"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
};
constexpr Names kExpertNames[] = {
    {"gate_proj.weight", "ffn_gate_exps.weight"}, {"up_proj.weight", "ffn_up_exps.weight"},
    {"down_proj.weight", "ffn_down_exps.weight"}, {"gate_proj.bias", "ffn_gate_exps.bias"},
    {"up_proj.bias", "ffn_up_exps.bias"},         {"down_proj.bias", "ffn_down_exps.bias"}};

std::string Theirs(std::span<const Names> names, std::string_view ours) {
  const auto found = std::ranges::find(names, ours, &Names::first);
  MOE_CHECK(found != names.end());
  return std::string(found->second);
}

class Planner {
 public:
  explicit Planner(const MadeModel& model)
      : spec_(model.spec), architecture_(GgufArchitecture(model)), file_type_(*FindFileType(model.weights)) {
    MadeModel published = model;
    published.weights = "bf16";
    for (PlannedTensor& tensor : PlanTensors(published)) published_.emplace(tensor.name, std::move(tensor));
  }

  std::vector<GgufTensor> Plan() && {
    if (spec_.llama3_rope != 0) AddDivisors();
    for (const model::ModelTensor& tensor : model::SegmentTensors(spec_)) {
      if (!model::IsDerived(spec_, tensor)) Add(tensor);
    }
    return std::move(tensors_);
  }

 private:
  void Add(const model::ModelTensor& tensor) {
    const model::PublishedPart published = model::PublishedAs(spec_, tensor);
    const PlannedTensor& source = published_.at(published.name);
    if (tensor.part == model::TensorPart::kModel) {
      return Push(Theirs(kModelNames, tensor.name), tensor, source);
    }
    constexpr std::string_view kLayers = "model.layers.";
    const size_t end = tensor.name.find('.', kLayers.size());
    MOE_CHECK(absl::SimpleAtoi(tensor.name.substr(kLayers.size(), end - kLayers.size()), &layer_));
    const std::string block = absl::StrCat("blk.", layer_, "."), rest = tensor.name.substr(end + 1);
    if (tensor.part == model::TensorPart::kExpert) {
      constexpr std::string_view kExperts = "mlp.experts.";
      const std::string name = block + Theirs(kExpertNames, rest.substr(rest.find('.', kExperts.size()) + 1));
      return published.is_whole(tensor) ? AddExpert(name, tensor, source) : AddExperts(name, tensor, published, source);
    }
    if (tensor.role == model::TensorRole::kLatentUp) return AddLatents(block, tensor, source);
    if (!published.is_whole(tensor)) return AddQueriesKeysValues(block, tensor, published, source);
    std::string name = Theirs(kLayerNames, rest);
    if (name == "ffn_norm.weight") {
      if (architecture_ == "glm4moe" || architecture_ == "gpt-oss") name = "post_attention_norm.weight";
      if (architecture_ == "dbrx") name = "attn_output_norm.weight";
    }
    Push(block + name, tensor, source);
    if (architecture_ == "llama" && (name == "attn_q.weight" || name == "attn_k.weight")) {
      tensors_.back().order = GgufRows::kNeighbours;
      tensors_.back().head_rows = spec_.head_dim();
    }
  }

  void Push(const std::string& name, const model::ModelTensor& tensor, const PlannedTensor& source) {
    GgufTensor& added = tensors_.emplace_back();
    added.name = name;
    added.extents = tensor.rows == 1 ? std::vector{tensor.cols} : std::vector{tensor.cols, tensor.rows};
    added.type = TypeOf(added);
    added.sources = {source};
  }

  void AddExpert(const std::string& name, const model::ModelTensor& tensor, const PlannedTensor& source) {
    const auto stack = std::ranges::find(tensors_, name, &GgufTensor::name);
    if (stack != tensors_.end()) return stack->sources.push_back(source);
    Push(name, tensor, source);
    tensors_.back().extents.push_back(spec_.num_experts);
  }

  // All experts of a tensor of the checkpoint, when the first comes.
  void AddExperts(const std::string& name, const model::ModelTensor& tensor, const model::PublishedPart& published,
                  const PlannedTensor& source) {
    if (published.first_row > 0) return;
    Push(name, tensor, source);
    GgufTensor& stack = tensors_.back();
    stack.extents.push_back(spec_.num_experts);
    stack.first_col = published.first_col;
    stack.col_step = published.col_step;
    if (!published.transposed) return;
    stack.order = GgufRows::kTransposed;
    stack.head_rows = stack.head_keys = tensor.cols;
  }

  // One tensor, as in the checkpoint, when the queries come.
  void AddQueriesKeysValues(const std::string& block, const model::ModelTensor& tensor,
                            const model::PublishedPart& published, const PlannedTensor& source) {
    if (published.first_row > 0) return;
    Push(block + "attn_qkv.weight", tensor, source);
    tensors_.back().extents.back() = published.shape.front();
  }

  void AddLatents(const std::string& block, const model::ModelTensor& tensor, const PlannedTensor& source) {
    const int64_t keys = spec_.qk_nope_head_dim, values = spec_.v_head_dim;
    const auto add = [&](const char* name, GgufRows order, std::vector<int64_t> extents) {
      Push(block + name, tensor, source);
      GgufTensor& half = tensors_.back();
      half.extents = std::move(extents);
      half.type = TypeOf(half);
      half.order = order;
      half.head_rows = keys + values;
      half.head_keys = keys;
    };
    add("attn_k_b.weight", GgufRows::kTransposed, {keys, tensor.cols, spec_.num_heads});
    add("attn_v_b.weight", GgufRows::kValues, {tensor.cols, values, spec_.num_heads});
  }

  // By what Llama 3's rule divides each frequency.
  void AddDivisors() {
    const auto positions = static_cast<double>(spec_.yarn.original_max_position_embeddings);
    const double high = spec_.yarn.beta_fast, low = spec_.yarn.beta_slow, factor = spec_.yarn.factor;
    GgufTensor divisors;
    divisors.name = "rope_freqs.weight";
    for (int64_t i = 0; i < spec_.head_dim(); i += 2) {
      const double exponent = static_cast<double>(i) / static_cast<double>(spec_.head_dim());
      const double turns = positions / (2 * std::numbers::pi * std::pow(spec_.rope_theta, exponent));
      const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      divisors.values.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
    }
    divisors.extents = {std::ssize(divisors.values)};
    tensors_.push_back(std::move(divisors));
  }

  // What is small or decisive is not rounded. Rows without whole blocks have a type of smaller ones.
  DType TypeOf(const GgufTensor& tensor) {
    const std::string_view name = tensor.name;
    if (tensor.extents.size() == 1 || name.ends_with("ffn_gate_inp.weight")) return DType::kF32;
    if (file_type_.weights == kMxfp4Weights && name.ends_with("_exps.weight")) return DType::kMXFP4;
    const DType type = file_type_.weights == kQ4KM ? MixedType(name) : file_type_.type;
    const bool four_bits = file_type_.type == DType::kQ4K || file_type_.type == DType::kQ4_0;
    const bool head = name == "output.weight" || (name == "token_embd.weight" && spec_.tied_head != 0);
    const DType wanted = head && four_bits ? DType::kQ6K : type;
    if (HasWholeBlocks(wanted, tensor.cols())) return wanted;
    const DType instead = wanted == DType::kQ4K ? DType::kQ5_0 : DType::kQ8_0;
    return HasWholeBlocks(instead, tensor.cols()) ? instead : DType::kF16;
  }

  // Of "Q4_K_M". A model with eight experts has wider types where all experts share a matrix.
  DType MixedType(std::string_view name) const {
    const bool eight = spec_.num_experts == 8;
    const bool values = name.ends_with("attn_v.weight") || name.ends_with("attn_qkv.weight");
    if (values) return eight ? DType::kQ8_0 : MoreBits(layer_);
    if (name.ends_with("attn_k.weight")) return eight ? DType::kQ8_0 : DType::kQ4K;
    if (name.ends_with("attn_output.weight")) return eight ? DType::kQ5K : DType::kQ4K;
    return name.find("ffn_down") != std::string_view::npos ? MoreBits(layer_) : DType::kQ4K;
  }
  DType MoreBits(int64_t layer) const { return HasMoreBits(layer, spec_.num_layers) ? DType::kQ6K : DType::kQ4K; }

  const weights::ModelSpec& spec_;
  const std::string_view architecture_;
  const FileType& file_type_;
  absl::flat_hash_map<std::string, PlannedTensor> published_;
  int64_t layer_ = 0;  // of the tensor at hand
  std::vector<GgufTensor> tensors_;
};

template <typename T>
void Append(T value, std::string* bytes) {
  const size_t at = bytes->size();
  bytes->resize(at + sizeof value);
  std::memcpy(bytes->data() + at, &value, sizeof value);
}

// Rows of a checkpoint's matrix, as F32.
void ReadRows(const PlannedTensor& source, uint64_t seed, int64_t row, int64_t rows, int64_t cols,
              std::vector<std::byte>& bytes, float* out) {
  bytes.resize(static_cast<size_t>(rows * cols * source.element_bytes()));
  FillValues(source, seed, row * cols, (row + rows) * cols, bytes.data());
  if (source.dtype == DType::kF32) {
    std::memcpy(out, bytes.data(), bytes.size());
    return;
  }
  for (int64_t i = 0; i < rows * cols; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * 2, sizeof bits);
    out[i] = FromBf16(bits);
  }
}

}  // namespace

bool HasMoreBits(int64_t layer, int64_t layers) {
  const int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

int64_t GgufTensor::rows() const {
  return std::accumulate(extents.begin() + 1, extents.end(), int64_t{1}, std::multiplies<>());
}

int64_t GgufTensor::row_bytes() const { return RowBytes(type, cols()); }

bool IsGgufType(std::string_view weights) { return FindFileType(weights) != nullptr; }

int64_t GgufFileType(std::string_view weights) { return FindFileType(weights)->number; }

std::string GgufString(std::string_view text) {
  std::string bytes;
  Append(uint64_t{text.size()}, &bytes);
  return bytes.append(text);
}

GgufPlan PlanGguf(const MadeModel& model, const std::string& name) {
  GgufPlan plan;
  plan.tensors = Planner(model).Plan();
  const GgufMetadataBytes metadata = GgufMetadataOf(model, name);
  std::string& header = plan.header;
  header = "GGUF";
  Append(kVersion, &header);
  Append(uint64_t{plan.tensors.size()}, &header);
  Append(static_cast<uint64_t>(metadata.keys), &header);
  header += metadata.bytes;
  int64_t data = 0;  // bytes after the header
  for (GgufTensor& tensor : plan.tensors) {
    header += GgufString(tensor.name);
    Append(static_cast<uint32_t>(tensor.extents.size()), &header);
    for (const int64_t extent : tensor.extents) Append(static_cast<uint64_t>(extent), &header);
    Append(TypeNumber(tensor.type), &header);
    Append(static_cast<uint64_t>(data), &header);
    tensor.offset = data;
    data = RoundUp(data + tensor.rows() * tensor.row_bytes(), kGgufAlignment);
  }
  header.resize(static_cast<size_t>(RoundUp(std::ssize(header), kGgufAlignment)), '\0');
  for (GgufTensor& tensor : plan.tensors) tensor.offset += std::ssize(header);
  plan.bytes = std::ssize(header) + data;
  return plan;
}

void FillGgufRows(const GgufTensor& tensor, uint64_t seed, int64_t begin, int64_t end, std::byte* out) {
  MOE_CHECK(0 <= begin && begin <= end && end <= tensor.rows());
  const int64_t cols = tensor.cols();
  auto* to = reinterpret_cast<uint8_t*>(out);
  if (tensor.sources.empty()) return RoundRow(tensor.type, tensor.values, to);
  const int64_t source_rows = tensor.rows() / std::ssize(tensor.sources);
  const int64_t keys = tensor.head_keys, values = tensor.head_rows - keys;
  std::vector<std::byte> bytes;
  std::vector<float> row(static_cast<size_t>(cols)), head;
  const auto wanted = [&](int64_t i) { return static_cast<size_t>(tensor.first_col + i * tensor.col_step); };
  int64_t head_of = -1;  // whose keys are in `head`
  for (int64_t r = begin; r < end; ++r, to += tensor.row_bytes()) {
    const PlannedTensor& source = tensor.sources[static_cast<size_t>(r / source_rows)];
    const int64_t from = r % source_rows;
    switch (tensor.order) {
      case GgufRows::kAsTheyAre:
        head.resize(static_cast<size_t>(source.shape.back()));
        ReadRows(source, seed, from, 1, source.shape.back(), bytes, head.data());
        for (int64_t c = 0; c < cols; ++c) row[static_cast<size_t>(c)] = head[wanted(c)];
        break;
      case GgufRows::kNeighbours: {
        const int64_t in_head = from % tensor.head_rows;
        ReadRows(source, seed, from - in_head + in_head % 2 * (tensor.head_rows / 2) + in_head / 2, 1, cols, bytes,
                 row.data());
        break;
      }
      case GgufRows::kValues:
        ReadRows(source, seed, from / values * tensor.head_rows + keys + from % values, 1, cols, bytes, row.data());
        break;
      case GgufRows::kTransposed: {
        const int64_t outputs = tensor.extents[1], source_cols = source.shape.back();
        if (head_of != from / outputs) {
          head_of = from / outputs;
          head.resize(static_cast<size_t>(keys * source_cols));
          ReadRows(source, seed, head_of * tensor.head_rows, keys, source_cols, bytes, head.data());
        }
        for (int64_t k = 0; k < keys; ++k)
          row[static_cast<size_t>(k)] = head[static_cast<size_t>(k * source_cols) + wanted(from % outputs)];
        break;
      }
    }
    RoundRow(tensor.type, row, to);
  }
}

}  // namespace moestro::cli
