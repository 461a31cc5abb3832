// Binds the model's tensors: finds them in the weight segment by name and checks them against the spec. After this, the
// engine meets no unexpected shape. All pointers refer to the segment.
#pragma once

#include "absl/status/statusor.h"
#include "common/model/schema.h"
#include "common/weights/segment.h"

namespace moestro::model {

// INVALID_ARGUMENT names the unsupported field.
absl::Status CheckSpec(const weights::ModelSpec& spec);

// Includes CheckSpec. NOT_FOUND or INVALID_ARGUMENT name the tensor and the expected value.
absl::StatusOr<ModelWeights> BindWeights(const weights::WeightSegment& segment);

}  // namespace moestro::model
