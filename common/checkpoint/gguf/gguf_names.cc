#include "common/checkpoint/gguf/gguf_names.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/checkpoint/gguf/gguf_header.h"
#include "common/model/schema.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

using Names = std::pair<std::string_view, std::string_view>;  // of the file, of the segment

constexpr Names kModelNames[] = {
    {"token_embd.weight", model::kEmbeddingName},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", model::kHeadName},
    {"rope_freqs.weight", "model.rotary_emb.inv_freq"},
};
// After the number of a layer. Architectures agree about all but the second norm.
constexpr Names kLayerNames[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"attn_output_norm.weight", "post_attention_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_q_a.weight", "self_attn.q_a_proj.weight"},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"},
    {"attn_q_b.weight", "self_attn.q_b_proj.weight"},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"attn_kv_b.weight", "self_attn.kv_b_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"attn_rot_embd.weight", "self_attn.rotary_emb.inv_freq"},
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"ffn_gate_inp.bias", "mlp.gate.bias"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
};
// An expert's layers: ".weight" or ".bias" follows.
constexpr Names kExpertNames[] = {{"ffn_gate", "gate_proj"}, {"ffn_up", "up_proj"}, {"ffn_down", "down_proj"}};

std::optional<std::string_view> Ours(std::span<const Names> names, std::string_view theirs) {
  const auto found = std::ranges::find(names, theirs, &Names::first);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

// "blk.<layer>.<rest>".
struct LayerName {
  int64_t layer = 0;
  std::string rest;
  std::string prefix;  // of the segment's names
};
std::optional<LayerName> ParseLayerName(const std::string& name) {
  constexpr std::string_view kPrefix = "blk.";
  const size_t end = name.find('.', kPrefix.size());
  LayerName parsed;
  if (!name.starts_with(kPrefix) || end == std::string::npos) return std::nullopt;
  if (!absl::SimpleAtoi(name.substr(kPrefix.size(), end - kPrefix.size()), &parsed.layer)) return std::nullopt;
  parsed.rest = name.substr(end + 1);
  parsed.prefix = absl::StrCat("model.layers.", parsed.layer, ".");
  return parsed;
}

class Taker {
 public:
  Taker(const weights::ModelSpec& spec, bool interleaved, bool has_whole_latents)
      : spec_(spec), interleaved_(interleaved), has_whole_latents_(has_whole_latents) {
    for (const model::ModelTensor& tensor : model::SegmentTensors(spec)) {
      if (!model::IsDerived(spec, tensor)) expected_.emplace(tensor.name, tensor.role);
      if (tensor.role != model::TensorRole::kLatentUp) continue;
      for (const char* const half : {".k_b_proj.", ".v_b_proj."}) {
        expected_.emplace(absl::StrReplaceAll(tensor.name, {{".kv_b_proj.", half}}), tensor.role);
      }
    }
  }

  absl::StatusOr<std::vector<TensorInfo>> TakeFrom(const TensorFile& file) {
    path_ = file.path();
    taken_.clear();
    for (const TensorInfo& tensor : file.tensors()) MOE_RETURN_IF_ERROR(Take(tensor));
    return std::move(taken_);
  }

  absl::Status Finish() const {
    if (unusable_ == 0) return absl::OkStatus();
    const std::string more = unusable_ > 1 ? absl::StrCat(" (and ", unusable_ - 1, " more of such tensors)") : "";
    return absl::UnimplementedError(absl::StrCat(first_unusable_, more));
  }

 private:
  absl::Status Wrong(const TensorInfo& tensor, absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": tensor ", text::Quoted(tensor.name), ": ", why));
  }
  absl::Status WrongShape(const TensorInfo& tensor, absl::string_view expected) const {
    return Wrong(tensor, absl::StrCat("shape [", absl::StrJoin(tensor.shape, ", "), "], expected ", expected));
  }

  absl::Status Take(const TensorInfo& tensor) {
    if (const auto ours = Ours(kModelNames, tensor.name)) return Add(tensor, std::string(*ours), tensor);
    const std::optional<LayerName> name = ParseLayerName(tensor.name);
    if (!name) return Wrong(tensor, "the model has no use for it");
    if (name->layer >= spec_.num_layers) {
      taken_.push_back(tensor);
      taken_.back().name = name->prefix + name->rest;
      return absl::OkStatus();
    }
    if (const auto ours = Ours(kLayerNames, name->rest)) {
      TensorInfo whole = tensor;
      if (name->rest == "ffn_gate_inp_shexp.weight" && whole.shape.size() == 1)
        whole.shape.insert(whole.shape.begin(), 1);
      const bool rotates = name->rest == "attn_q.weight" || name->rest == "attn_k.weight";
      if (interleaved_ && rotates) whole.interleaved_rows = spec_.head_dim();
      return Add(tensor, absl::StrCat(name->prefix, absl::string_view(ours->data(), ours->size())), whole);
    }
    if (name->rest == "attn_k_b.weight" || name->rest == "attn_v_b.weight") return AddLatentHalf(tensor, *name);
    if (name->rest == "attn_qkv.weight") return AddQueriesKeysValues(tensor, *name);
    if (name->rest.find("_exps.") != std::string::npos) return AddExperts(tensor, *name);
    return AddOneExpert(tensor, *name);
  }

  // Appends `part`, which becomes a tensor of this name.
  absl::Status Add(const TensorInfo& tensor, std::string name, TensorInfo part) {
    const auto expected = expected_.find(name);
    const bool table = name.ends_with(".rotary_emb.inv_freq");
    if (expected == expected_.end() && !table) return Wrong(tensor, "the model has no use for it");
    if (!seen_.insert(name).second) return Wrong(tensor, absl::StrCat("the file has ", name, " twice"));
    if (!table && !IsUsable(tensor, expected->second)) return absl::OkStatus();
    part.name = std::move(name);
    taken_.push_back(std::move(part));
    return absl::OkStatus();
  }

  bool IsUsable(const TensorInfo& tensor, model::TensorRole role) {
    const bool has_kernel = tensor.dtype && (model::IsWidened(role) || tensor.dtype != DType::kF32);
    if (has_kernel) return true;
    if (unusable_++ == 0) {
      first_unusable_ = absl::StrCat(
          path_, ": tensor ", text::Quoted(tensor.name), ": type ", tensor.dtype_name, " is not supported here; ",
          tensor.dtype_name == "F32" ? "convert the model with --outtype bf16" : kGetOtherTypes);
    }
    return false;
  }

  // Rows [row, row + rows) of the matrix that begins at `offset`.
  static TensorInfo Part(const TensorInfo& tensor, int64_t offset, int64_t row, int64_t rows) {
    const int64_t cols = tensor.shape.back();
    const int64_t row_bytes =
        tensor.bytes / (tensor.shape.size() == 3 ? tensor.shape[0] * tensor.shape[1] : tensor.shape[0]);
    TensorInfo part = tensor;
    part.shape = {rows, cols};
    part.file_offset += offset + row * row_bytes;
    part.bytes = rows * row_bytes;
    return part;
  }

  // Heads are stacked, or one after the other. Some files have both halves and the whole, which is enough.
  absl::Status AddLatentHalf(const TensorInfo& tensor, const LayerName& name) {
    if (has_whole_latents_) return absl::OkStatus();
    const bool keys = name.rest == "attn_k_b.weight";
    const int64_t cols = keys ? spec_.qk_nope_head_dim : spec_.kv_lora_rank;
    const int64_t rows = spec_.num_heads * (keys ? spec_.kv_lora_rank : spec_.v_head_dim);
    const std::vector<int64_t> flat = {rows, cols}, stack = {spec_.num_heads, rows / spec_.num_heads, cols};
    if (tensor.shape != flat && tensor.shape != stack) {
      return WrongShape(tensor, absl::StrCat("[", absl::StrJoin(stack, ", "), "]"));
    }
    TensorInfo half = tensor;
    half.shape = flat;
    return Add(tensor, absl::StrCat(name.prefix, "self_attn.", keys ? "k" : "v", "_b_proj.weight"), half);
  }

  absl::Status AddQueriesKeysValues(const TensorInfo& tensor, const LayerName& name) {
    const int64_t queries = spec_.num_heads * spec_.head_dim(), keys = spec_.num_kv_heads * spec_.head_dim();
    const int64_t rows = queries + 2 * keys;
    if (tensor.shape.size() != 2 || tensor.shape[0] != rows) return WrongShape(tensor, absl::StrCat(rows, " rows"));
    const auto add = [&](const char* ours, int64_t row, int64_t count) {
      return Add(tensor, absl::StrCat(name.prefix, "self_attn.", ours, ".weight"), Part(tensor, 0, row, count));
    };
    MOE_RETURN_IF_ERROR(add("q_proj", 0, queries));
    MOE_RETURN_IF_ERROR(add("k_proj", queries, keys));
    return add("v_proj", queries + keys, keys);
  }

  // A stack of matrices or of biases, one for each expert; gates and ups may be in one tensor, gates first.
  absl::Status AddExperts(const TensorInfo& tensor, const LayerName& name) {
    constexpr std::string_view kInfix = "_exps";
    const size_t end = name.rest.find(kInfix);
    const std::string matrix = name.rest.substr(0, end), kind = name.rest.substr(end + kInfix.size());
    const bool fused = matrix == "ffn_gate_up", is_bias = kind == ".bias";
    const auto ours = Ours(kExpertNames, fused ? "ffn_gate" : matrix);
    if (!ours || (!is_bias && kind != ".weight")) return Wrong(tensor, "the model has no use for it");
    TensorInfo stack = tensor;
    if (is_bias) stack.shape.push_back(1);
    const bool divides = stack.shape.size() == 3 && stack.shape[0] == spec_.num_experts;
    if (!divides || (fused && stack.shape[1] % 2 != 0)) {
      return WrongShape(tensor, absl::StrCat("[", spec_.num_experts, fused ? ", twice the width" : ", rows",
                                             is_bias ? "]" : ", columns]"));
    }
    const int64_t rows = fused ? stack.shape[1] / 2 : stack.shape[1];
    for (int64_t expert = 0; expert < spec_.num_experts; ++expert) {
      const int64_t offset = expert * (tensor.bytes / spec_.num_experts);
      const auto add = [&](std::string_view layer, int64_t row) {
        TensorInfo part = Part(stack, offset, row, rows);
        if (is_bias) part.shape.pop_back();
        return Add(tensor, ExpertName(name, expert, layer, kind), std::move(part));
      };
      MOE_RETURN_IF_ERROR(add(*ours, 0));
      if (fused) MOE_RETURN_IF_ERROR(add("up_proj", rows));
    }
    return absl::OkStatus();
  }

  // "ffn_gate.7.weight", as the first files of Mixtral have it.
  absl::Status AddOneExpert(const TensorInfo& tensor, const LayerName& name) {
    const size_t first = name.rest.find('.'), second = name.rest.find('.', first + 1);
    int64_t expert = 0;
    const bool splits = second != std::string::npos && name.rest.substr(second) == ".weight";
    if (!splits || !absl::SimpleAtoi(name.rest.substr(first + 1, second - first - 1), &expert)) {
      return Wrong(tensor, "the model has no use for it");
    }
    const auto ours = Ours(kExpertNames, std::string_view(name.rest).substr(0, first));
    if (!ours) return Wrong(tensor, "the model has no use for it");
    return Add(tensor, ExpertName(name, expert, *ours, ".weight"), tensor);
  }

  static std::string ExpertName(const LayerName& name, int64_t expert, std::string_view layer, absl::string_view kind) {
    return absl::StrCat(name.prefix, "mlp.experts.", expert, ".", std::string(layer), kind);
  }

  const weights::ModelSpec& spec_;
  const bool interleaved_;
  const bool has_whole_latents_;
  absl::flat_hash_map<std::string, model::TensorRole> expected_;
  absl::flat_hash_set<std::string> seen_;
  std::string path_;  // of the file at hand
  std::vector<TensorInfo> taken_;
  int64_t unusable_ = 0;
  std::string first_unusable_;
};

}  // namespace

absl::StatusOr<std::vector<TensorFile>> TakeTensors(GgufModel model, const weights::ModelSpec& spec) {
  // Its converter changes the order of rows for a rotation of neighbours.
  MOE_ASSIGN_OR_RETURN(const std::string* const architecture, model.metadata.Text("general.architecture"));
  const bool has_whole_latents = std::ranges::any_of(model.files, [](const TensorFile& file) {
    return std::ranges::any_of(file.tensors(),
                               [](const TensorInfo& tensor) { return tensor.name.ends_with(".attn_kv_b.weight"); });
  });
  Taker taker(spec, *architecture == "llama", has_whole_latents);
  std::vector<TensorFile> files;
  for (TensorFile& file : model.files) {
    MOE_ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors, taker.TakeFrom(file));
    files.push_back(std::move(file).With(std::move(tensors)));
  }
  MOE_RETURN_IF_ERROR(taker.Finish());
  return files;
}

}  // namespace moestro::checkpoint
