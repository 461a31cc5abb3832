// The tensors of a GGUF file by the names of the segment's schema, which any checkpoint may use (tensor_lookup.h).
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/gguf/gguf_file.h"
#include "common/weights/model_spec.h"

namespace moestro::checkpoint {

// The files of the model, in their order, with the tensors that the model has in the end. Several share the bytes of
// one tensor of the file: each expert of a stack, queries, keys and values of DBRX, gates and ups in one tensor. Those
// of layers past the last keep their place; legacy tables of rotations are left out.
// UNIMPLEMENTED: a type that the engine has no kernels for, F32 in a linear layer, with the types to choose instead.
// INVALID_ARGUMENT: a tensor that the model has no use for, or of a shape that cannot be divided. Messages name file
// and tensor as the file calls it; what is missing is the inventory's to say.
absl::StatusOr<std::vector<TensorFile>> TakeTensors(GgufModel model, const weights::ModelSpec& spec);

}  // namespace moestro::checkpoint
