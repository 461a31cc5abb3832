// What models the CUDA kernels can compute, and in which form. Errors are UNIMPLEMENTED, and name what they have.
#pragma once

#include "absl/status/status.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/weights/model_spec.h"

namespace moestro::engine {

// Prompts on one device, prompts that ranks share, and steps of decode.
absl::Status CheckPrefillSupported(const weights::ModelSpec& spec);
absl::Status CheckRanksSupported(const weights::ModelSpec& spec);
absl::Status CheckDecodeSupported(const weights::ModelSpec& spec);

// Types of the weights, which all of them must have: BF16 and FP8. Names the first tensor with another one.
absl::Status CheckWeightsSupported(const weights::ModelSpec& spec, const model::ModelWeights& weights);

// The form of MLA that the kernels of prompts have, and that of decode. Grouped queries have one form under both names.
absl::Status CheckUnabsorbed(const weights::ModelSpec& spec, model::MlaForm form);
absl::Status CheckAbsorbed(const weights::ModelSpec& spec, model::MlaForm form);

}  // namespace moestro::engine
