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
// A visitor may change it. Absent arrays (null) are left out.
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

// Those that attention of this form reads.
template <typename Visit>
void VisitArrays(const ModelSpec& spec, MlaForm form, AttentionWeights& attention, Visit&& visit) {
  visit(attention.input_norm, spec.hidden_size * int64_t{4});
  VisitArrays(attention.q_a, visit);
  if (attention.q_a_norm != nullptr) visit(attention.q_a_norm, spec.q_lora_rank * int64_t{4});
  VisitArrays(attention.q_b, visit);
  VisitArrays(attention.kv_a, visit);
  visit(attention.kv_a_norm, spec.kv_lora_rank * int64_t{4});
  VisitArrays(attention.kv_b, visit);
  if (form == MlaForm::kAbsorbed) VisitArrays(attention.key_transposed, visit);
  VisitArrays(attention.o, visit);
}

// All but the routed experts.
template <typename Visit>
void VisitArrays(const ModelSpec& spec, FeedForwardWeights& weights, Visit&& visit) {
  visit(weights.norm, spec.hidden_size * int64_t{4});
  if (weights.router != nullptr) {
    visit(weights.router, spec.num_experts * spec.hidden_size * 4);
    visit(weights.bias, spec.num_experts * int64_t{4});
  }
  VisitArrays(weights.always, visit);
}

}  // namespace moestro
