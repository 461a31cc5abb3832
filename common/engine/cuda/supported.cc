#include "common/engine/cuda/supported.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/engine/cuda/activations.h"
#include "common/kernels/cuda/call.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/int8_inputs.h"
#include "common/kernels/cuda/routing.h"
#include "common/model/schema.h"

namespace moestro::engine {
namespace {

absl::Status CheckRouting(const weights::ModelSpec& spec) {
  if (spec.num_experts <= cuda::kMaxExperts && spec.experts_per_token <= cuda::kMaxChosen &&
      spec.num_expert_groups <= cuda::kMaxGroups) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrFormat(
      "the CUDA kernels route to at most %d of %d experts in %d groups, not to %d of %d in %d", cuda::kMaxChosen,
      cuda::kMaxExperts, cuda::kMaxGroups, spec.experts_per_token, spec.num_experts, spec.num_expert_groups));
}

absl::Status CheckOnlyForm(const weights::ModelSpec& spec, model::MlaForm form, model::MlaForm only, const char* what) {
  if (spec.attention_kind() == weights::AttentionKind::kGroupedQueries || form == only) return absl::OkStatus();
  const auto name = [](model::MlaForm of) { return of == model::MlaForm::kAbsorbed ? "absorbed" : "un-absorbed"; };
  return absl::UnimplementedError(
      absl::StrFormat("the CUDA kernels compute %s with %s MLA, not with %s", what, name(only), name(form)));
}

// A launch has one type: of gate and up, and of the experts that it takes.
absl::Status CheckMlpTypes(const model::FeedForwardWeights& w, size_t layer) {
  const auto differs = [](const model::MlpWeights& a, const model::MlpWeights& b) {
    return a.gate.dtype != b.up.dtype || a.gate.dtype != b.gate.dtype || a.down.dtype != b.down.dtype;
  };
  if (w.dense.gate.rows > 0 && differs(w.dense, w.dense)) {
    return absl::UnimplementedError(absl::StrFormat(
        "the CUDA kernels compute gate and up together, but those of layer %d are %s and %s; use --device host", layer,
        DTypeName(w.dense.gate.dtype), DTypeName(w.dense.up.dtype)));
  }
  const auto odd = std::ranges::find_if(w.experts, [&](const auto& expert) { return differs(w.experts[0], expert); });
  if (odd == w.experts.end()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrFormat(
      "the CUDA kernels compute gate and up of several experts together, but those of layer %d have different types, "
      "first in expert %d; use --device host",
      layer, odd - w.experts.begin()));
}

}  // namespace

absl::Status CheckPrefillSupported(const weights::ModelSpec& spec) {
  if (spec.attention_kind() == weights::AttentionKind::kGroupedQueries && spec.v_head_dim != 128 &&
      spec.v_head_dim != 64) {
    return absl::UnimplementedError(absl::StrFormat(
        "the CUDA kernels attend with heads of 64 or 128 numbers to grouped keys, not of %d", spec.v_head_dim));
  }
  if (spec.attention_kind() == weights::AttentionKind::kGroupedQueries) return CheckRouting(spec);
  if (spec.qk_nope_head_dim != 128 || spec.qk_rope_head_dim != 64 || spec.v_head_dim != 128) {
    return absl::UnimplementedError(
        absl::StrFormat("the CUDA kernels have attention heads of 128 + 64 numbers and values of 128, not of %d + %d "
                        "and %d",
                        spec.qk_nope_head_dim, spec.qk_rope_head_dim, spec.v_head_dim));
  }
  return CheckRouting(spec);
}

absl::Status CheckRanksSupported(const weights::ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckPrefillSupported(spec));
  if (cuda::InputStride(spec.hidden_size) == spec.hidden_size) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrFormat(
      "GPUs exchange rows of a multiple of 8 numbers, not of %d: this model's prompts are for one of them",
      spec.hidden_size));
}

absl::Status CheckDecodeSupported(const weights::ModelSpec& spec) {
  const int64_t dim = spec.v_head_dim;
  if (spec.attention_kind() == weights::AttentionKind::kGroupedQueries &&
      (dim % 16 != 0 || 2 * dim > cuda::kDecodeMaxKeyDim || spec.hidden_size % 8 != 0)) {
    return absl::UnimplementedError(
        absl::StrFormat("the CUDA kernels decode with heads of up to %d numbers, a multiple of 16, and a hidden_size "
                        "that is a multiple of 8; not with heads of %d, hidden_size %d",
                        cuda::kDecodeMaxKeyDim / 2, dim, spec.hidden_size));
  }
  if (spec.attention_kind() == weights::AttentionKind::kGroupedQueries) return CheckRouting(spec);
  if (spec.kv_lora_rank > cuda::kDecodeMaxLatent || spec.kv_lora_rank % 8 != 0 ||
      spec.kv_dim() > cuda::kDecodeMaxKeyDim || spec.kv_dim() % 8 != 0 || spec.qk_nope_head_dim % 4 != 0 ||
      spec.v_head_dim % 4 != 0 || spec.qk_head_dim() % 4 != 0 || spec.hidden_size % 8 != 0) {
    return absl::UnimplementedError(absl::StrFormat(
        "the CUDA kernels decode with latents of up to %d numbers, keys of up to %d, both and hidden_size multiples of "
        "8, heads' of 4; not with %d + %d, hidden_size %d, heads of %d and %d",
        cuda::kDecodeMaxLatent, cuda::kDecodeMaxKeyDim, spec.kv_lora_rank, spec.qk_rope_head_dim, spec.hidden_size,
        spec.qk_head_dim(), spec.v_head_dim));
  }
  return CheckRouting(spec);
}

absl::Status CheckWeightsSupported(const weights::ModelSpec& spec, const model::ModelWeights& weights) {
  model::ModelWeights visited = weights;  // pointers, not what they point to
  absl::Status status;
  const auto check = [&](const model::ModelTensor& tensor, const PackedMatrix& matrix) {
    if (!status.ok()) return;
    const bool is_int8 = matrix.dtype == DType::kI8;
    // Of latents, absorbed MLA takes the rows of one head at a time, which may begin inside a row group.
    if (tensor.role == model::TensorRole::kLatentUp && (is_int8 || IsBlockFormat(matrix.dtype))) {
      status = absl::UnimplementedError(
          absl::StrFormat("the CUDA kernels do not compute tensor '%s' in %s; use --device host", tensor.name,
                          DTypeName(matrix.dtype)));
    } else if (is_int8 &&
               (matrix.cols > cuda::kMaxInt8Inputs || CudaStride(matrix.cols) < cuda::Int8Stride(matrix.cols))) {
      status = absl::UnimplementedError(absl::StrFormat(
          "the CUDA kernels code 9 to %d inputs for I8 weights, but tensor '%s' has %d; use --device host",
          cuda::kMaxInt8Inputs, tensor.name, matrix.cols));
    }
  };
  model::ForEachTensor(spec, visited, [&](const model::ModelTensor& tensor, auto& field) {
    if constexpr (std::is_same_v<decltype(field), PackedMatrix&>) check(tensor, field);
  });
  for (size_t layer = 0; status.ok() && layer < weights.layers.size(); ++layer) {
    status = CheckMlpTypes(weights.layers[layer].feed_forward, layer);
  }
  return status;
}

bool TakesCodes(const weights::ModelSpec& spec, const model::ModelWeights& weights, Int8Activations setting) {
  if (CodingOf(DType::kI8, setting) == InputCoding::kNone) return false;
  model::ModelWeights visited = weights;
  bool has_int8 = false;
  model::ForEachTensor(spec, visited, [&](const model::ModelTensor&, auto& field) {
    if constexpr (std::is_same_v<decltype(field), PackedMatrix&>) has_int8 = has_int8 || field.dtype == DType::kI8;
  });
  return has_int8;
}

absl::Status CheckUnabsorbed(const weights::ModelSpec& spec, model::MlaForm form) {
  return CheckOnlyForm(spec, form, model::MlaForm::kUnabsorbed, "prompts");
}

absl::Status CheckAbsorbed(const weights::ModelSpec& spec, model::MlaForm form) {
  return CheckOnlyForm(spec, form, model::MlaForm::kAbsorbed, "steps of decode");
}

}  // namespace moestro::engine
