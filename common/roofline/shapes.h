// A model of which only the shapes matter.
#pragma once

#include "common/model/binding.h"
#include "common/tensor/dtype.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Weights of the right shapes and sizes, laid out as in a segment, at addresses that nobody may read. All linear layers
// have the type `linear`; embedding and head are BF16.
ModelWeights ShapesOnly(const ModelSpec& spec, DType linear);

}  // namespace moestro
