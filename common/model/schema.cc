#include "common/model/schema.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace moestro::model {
namespace {

// Names are words with dots between them. These are the words that families choose differently: the block of MLPs and
// experts; gate, up and down of an MLP; the shared expert. So is the place of the router's bias.
struct Dialect {
  std::string_view family;                                        // ModelSpec::family
  std::string_view words[5];                                      // empty: as in the segment
  std::string_view router_bias = "gate.e_score_correction_bias";  // the end of its name
};
// The first has the segment's words. They are those of all families that have no row of their own.
constexpr Dialect kDialects[] = {
    {"deepseek_v3", {"mlp", "gate_proj", "up_proj", "down_proj", "shared_experts"}},
    {"mixtral", {"block_sparse_moe", "w1", "w3", "w2"}},
    {"qwen2_moe", {"", "", "", "", "shared_expert"}},
    {"minimax_m2", {"block_sparse_moe", "w1", "w3", "w2"}, "e_score_correction_bias"},
};

// Of the family, a name of the segment.
std::string Published(const Dialect& dialect, const std::string& name) {
  std::vector<std::string> words = absl::StrSplit(name, '.');
  for (std::string& word : words) {
    const auto* const ours = std::ranges::find(kDialects[0].words, word);
    if (ours == std::end(kDialects[0].words)) continue;
    const std::string_view theirs = dialect.words[ours - kDialects[0].words];
    if (!theirs.empty()) word = theirs;
  }
  std::string published = absl::StrJoin(words, ".");
  const std::string_view bias = kDialects[0].router_bias;
  if (published.ends_with(bias)) published.replace(published.size() - bias.size(), bias.size(), dialect.router_bias);
  return published;
}

constexpr std::string_view kDbrx = "dbrx";
// DBRX's names: of the model, and what follows a layer's number.
constexpr std::pair<std::string_view, std::string_view> kDbrxNames[] = {
    {kEmbeddingName, "transformer.wte.weight"},
    {"model.norm.weight", "transformer.norm_f.weight"},
    {kHeadName, kHeadName},
    {"input_layernorm.weight", "norm_attn_norm.norm_1.weight"},
    {"self_attn.o_proj.weight", "norm_attn_norm.attn.out_proj.weight"},
    {"post_attention_layernorm.weight", "norm_attn_norm.norm_2.weight"},
    {"mlp.gate.weight", "ffn.router.layer.weight"},
};
std::string DbrxName(std::string_view name) {
  return std::string(std::ranges::find(kDbrxNames, name, [](const auto& pair) { return pair.first; })->second);
}

// Queries, keys and values are rows of one tensor. So are the gates of all experts, their ups, and their downs, which
// are transposed.
PublishedPart PublishedByDbrx(const weights::ModelSpec& spec, const ModelTensor& tensor) {
  constexpr size_t kLayerWords = 3;  // model.layers.0
  const std::vector<std::string> words = absl::StrSplit(tensor.name, '.');
  if (words[1] != "layers") return {DbrxName(tensor.name), tensor.shape()};
  const std::string block = absl::StrCat("transformer.blocks.", words[2], ".");
  const std::string& part = words[kLayerWords + 1];
  const int64_t queries = spec.num_heads * spec.head_dim(), keys = spec.num_kv_heads * spec.head_dim();
  const int64_t first_of_qkv = part == "q_proj" ? 0 : part == "k_proj" ? queries : queries + keys;
  if (part == "q_proj" || part == "k_proj" || part == "v_proj") {
    return {block + "norm_attn_norm.attn.Wqkv.weight", {queries + 2 * keys, spec.hidden_size}, first_of_qkv};
  }
  if (part == "experts") {
    int64_t expert = 0;
    MOE_CHECK(absl::SimpleAtoi(words[kLayerWords + 2], &expert));
    const std::string& matrix = words[kLayerWords + 3];
    const bool is_down = matrix == "down_proj";
    const char* const theirs = is_down ? "w2" : matrix == "gate_proj" ? "w1" : "v1";
    const int64_t width = spec.moe_intermediate_size;
    return {absl::StrCat(block, "ffn.experts.mlp.", theirs),
            {spec.num_experts * width, spec.hidden_size},
            expert * width,
            is_down};
  }
  return {block + DbrxName(absl::StrJoin(words.begin() + kLayerWords, words.end(), ".")), tensor.shape()};
}

constexpr std::string_view kGptOss = "gpt_oss";

// The experts of a layer are one tensor [experts, inputs, outputs] of gates and ups, which alternate, and one of downs;
// so are their biases, [experts, outputs].
PublishedPart PublishedByGptOss(const weights::ModelSpec& spec, const ModelTensor& tensor) {
  constexpr std::string_view kRouter = ".mlp.gate.", kExperts = ".experts.";
  if (const size_t router = tensor.name.find(kRouter); router != std::string::npos) {
    return {std::string(tensor.name).replace(router, kRouter.size(), ".mlp.router."), tensor.shape()};
  }
  if (tensor.part != TensorPart::kExpert) return {tensor.name, tensor.shape()};
  const size_t after = tensor.name.find(kExperts) + kExperts.size();
  const std::vector<std::string> words = absl::StrSplit(tensor.name.substr(after), '.');  // 0.gate_proj.weight
  int64_t expert = 0;
  MOE_CHECK(absl::SimpleAtoi(words[0], &expert));
  const bool is_bias = tensor.role == TensorRole::kBias, is_down = words[1] == "down_proj";
  const int64_t hidden = spec.hidden_size, width = spec.moe_intermediate_size, experts = spec.num_experts;
  const int64_t inputs = is_down ? width : hidden, outputs = is_down ? hidden : 2 * width;
  const std::string name =
      absl::StrCat(tensor.name.substr(0, after), is_down ? "down_proj" : "gate_up_proj", is_bias ? "_bias" : "");
  PublishedPart part{name, {experts, inputs, outputs}, expert * inputs, /*transposed=*/true};
  if (is_bias) part = {name, {experts, outputs}, expert};
  if (is_down) return part;
  part.first_col = words[1] == "up_proj" ? 1 : 0;
  part.col_step = 2;
  return part;
}

std::vector<ModelTensor> AsPublished(const weights::ModelSpec& spec, const std::vector<ModelTensor>& tensors) {
  std::vector<ModelTensor> published;
  absl::flat_hash_set<std::string> seen;
  for (const ModelTensor& tensor : tensors) {
    if (IsDerived(spec, tensor)) continue;
    PublishedPart part = PublishedAs(spec, tensor);
    if (!seen.insert(part.name).second) continue;
    ModelTensor whole{std::move(part.name), tensor.part, tensor.role, tensor.rows, tensor.cols};
    if (!part.is_whole(tensor)) {
      whole.cols = part.shape.back();
      whole.rows = std::accumulate(part.shape.begin(), part.shape.end() - 1, int64_t{1}, std::multiplies<>());
      whole.in_parts = true;
      whole.dims = std::move(part.shape);
    }
    published.push_back(std::move(whole));
  }
  return published;
}

}  // namespace

PublishedPart PublishedAs(const weights::ModelSpec& spec, const ModelTensor& tensor) {
  if (spec.family == kDbrx) return PublishedByDbrx(spec, tensor);
  if (spec.family == kGptOss) return PublishedByGptOss(spec, tensor);
  const auto* const dialect = std::ranges::find(kDialects, std::string_view(spec.family), &Dialect::family);
  const std::string name = dialect == std::end(kDialects) ? tensor.name : Published(*dialect, tensor.name);
  return {name, tensor.shape()};
}

std::vector<ModelTensor> SegmentTensors(const weights::ModelSpec& spec) {
  std::vector<ModelTensor> tensors;
  ModelWeights unused;
  ForEachTensor(spec, unused, [&](const ModelTensor& tensor, auto&) { tensors.push_back(tensor); });
  return tensors;
}

std::vector<ModelTensor> CheckpointTensors(const weights::ModelSpec& spec) {
  return AsPublished(spec, SegmentTensors(spec));
}

std::vector<ModelTensor> CheckpointTensors(const weights::ModelSpec& spec, int64_t layer) {
  std::vector<ModelTensor> tensors;
  LayerWeights unused;
  ForEachTensor(spec, layer, unused, [&](const ModelTensor& tensor, auto&) { tensors.push_back(tensor); });
  return AsPublished(spec, tensors);
}

bool HasFp8Weights(const weights::ModelSpec& spec, const ModelWeights& weights) {
  ModelWeights visited = weights;  // pointers, not what they point to
  bool has_fp8 = false;
  ForEachTensor(spec, visited, [&](const ModelTensor&, auto& field) {
    if constexpr (requires { field.dtype; }) has_fp8 = has_fp8 || field.dtype == DType::kF8E4M3;
  });
  return has_fp8;
}

int64_t ParameterCount(const weights::ModelSpec& spec) {
  int64_t total = 0;
  for (const ModelTensor& tensor : CheckpointTensors(spec)) total += tensor.elements();
  return total;
}

int64_t ActiveParameterCount(const weights::ModelSpec& spec) {
  int64_t all_experts = 0, others = 0;
  for (const ModelTensor& tensor : CheckpointTensors(spec)) {
    if (tensor.role == TensorRole::kEmbedding && spec.tied_head == 0) continue;
    (tensor.part == TensorPart::kExpert ? all_experts : others) += tensor.elements();
  }
  if (all_experts == 0) return others;
  return others + all_experts / spec.num_experts * spec.experts_per_token;
}

int64_t PredictionLayerParameterCount(const weights::ModelSpec& spec) {
  const int64_t hidden = spec.hidden_size;
  int64_t total = 2 * hidden * hidden + 3 * hidden + 2 * spec.vocab_size * hidden;
  for (const ModelTensor& tensor : CheckpointTensors(spec, spec.num_layers)) total += tensor.elements();
  return total;
}

}  // namespace moestro::model
