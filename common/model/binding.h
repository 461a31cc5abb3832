// The model's tensors, found in the weight segment by name and checked against the spec: after this no shape can
// surprise the engine. Everything points into the segment.
#pragma once

#include "absl/status/statusor.h"
#include "common/model/schema.h"
#include "common/weights/segment.h"

namespace moestro {

// INVALID_ARGUMENT names the field that the engine cannot work with.
absl::Status CheckSpec(const ModelSpec& spec);

// Includes CheckSpec. NOT_FOUND or INVALID_ARGUMENT name the tensor and what was expected.
absl::StatusOr<ModelWeights> BindWeights(const WeightSegment& segment);

}  // namespace moestro
