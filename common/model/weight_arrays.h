// The arrays behind a module's weights, one by one: for whoever moves them elsewhere and lets the engine's code run
// there.
#pragma once

#include <cstdint>

#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/weights/model_spec.h"
#include "common/weights/tensor_size.h"

namespace moestro {

// Each calls visit(pointer&, bytes) for every array, where pointer is a const uint8_t* or const float* of the weights.
// A visitor may change it. Absent arrays (null) are left out, and so are exceptions, which only CPUs use.
template <typename Visit>
void VisitArrays(PackedMatrix& matrix, Visit&& visit) {
  if (matrix.data == nullptr) return;
  visit(matrix.data, PackedBytes(matrix.dtype, matrix.rows, matrix.cols));
  if (matrix.scales != nullptr) visit(matrix.scales, TensorScaleBytes(matrix.rows, matrix.cols));
}

template <typename Visit>
void VisitArrays(MlpWeights& mlp, Visit&& visit) {
  VisitArrays(mlp.gate, visit);
  VisitArrays(mlp.up, visit);
  VisitArrays(mlp.down, visit);
}

template <typename Visit>
void VisitFloats(const float*& values, int64_t count, Visit&& visit) {
  if (values != nullptr) visit(values, count * int64_t{sizeof(float)});
}

// Those that attention of this form reads.
template <typename Visit>
void VisitArrays(const ModelSpec& spec, MlaForm form, AttentionWeights& attention, Visit&& visit) {
  VisitFloats(attention.input_norm, spec.hidden_size, visit);
  VisitArrays(attention.q_a, visit);
  VisitFloats(attention.q_a_norm, spec.q_lora_rank, visit);
  VisitArrays(attention.q_b, visit);
  VisitArrays(attention.kv_a, visit);
  VisitFloats(attention.kv_a_norm, spec.kv_lora_rank, visit);
  VisitArrays(attention.kv_b, visit);
  if (form == MlaForm::kAbsorbed) VisitArrays(attention.key_transposed, visit);
  VisitArrays(attention.k, visit);
  VisitArrays(attention.v, visit);
  VisitFloats(attention.q_norm, spec.v_head_dim, visit);
  VisitFloats(attention.k_norm, spec.v_head_dim, visit);
  VisitArrays(attention.o, visit);
}

// All but the routed experts.
template <typename Visit>
void VisitArrays(const ModelSpec& spec, FeedForwardWeights& weights, Visit&& visit) {
  VisitFloats(weights.norm, spec.hidden_size, visit);
  VisitFloats(weights.router, spec.num_experts * spec.hidden_size, visit);
  VisitFloats(weights.bias, spec.num_experts, visit);
  VisitArrays(weights.always, visit);
}

}  // namespace moestro
