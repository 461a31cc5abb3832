// A model with shapes but no weights.
#pragma once

#include "absl/functional/function_ref.h"
#include "common/model/binding.h"
#include "common/model/schema.h"
#include "common/tensor/dtype.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

// The type of a packed tensor, or of the embedding.
using TypeOf = absl::FunctionRef<DType(const model::ModelTensor& tensor)>;

// Weights of the right shapes and sizes, in a segment's layout, at addresses that must not be read.
model::ModelWeights ShapesOnly(const weights::ModelSpec& spec, TypeOf type_of);
// All linear layers have the type `linear`; embedding and head are BF16.
model::ModelWeights ShapesOnly(const weights::ModelSpec& spec, DType linear);

}  // namespace moestro::roofline
