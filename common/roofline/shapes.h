// A model with shapes but no weights.
#pragma once

#include "common/model/binding.h"
#include "common/tensor/dtype.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

// Weights of the right shapes and sizes, in a segment's layout, at addresses that must not be read. All linear layers
// have the type `linear`; embedding and head are BF16.
model::ModelWeights ShapesOnly(const weights::ModelSpec& spec, DType linear);

}  // namespace moestro::roofline
