// What models the CUDA kernels can compute, and in which form. Errors are UNIMPLEMENTED, and name what they have.
#pragma once

#include "absl/status/status.h"
#include "common/kernels/cpu/input_coding.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/weights/model_spec.h"

namespace moestro::engine {

// Prompts on one device, prompts that ranks share, and steps of decode.
absl::Status CheckPrefillSupported(const weights::ModelSpec& spec);
absl::Status CheckRanksSupported(const weights::ModelSpec& spec);
absl::Status CheckDecodeSupported(const weights::ModelSpec& spec);

// Types of the weights: not I8, nor formats of blocks where keys and values are made of latents; weight segments have
// F16 there. I8 weights of 9 to kMaxCodedInputs inputs. Names the first tensor that is otherwise.
absl::Status CheckWeightsSupported(const weights::ModelSpec& spec, const model::ModelWeights& weights);

// Whether linear layers take inputs as 8-bit codes: where I8 weights are, unless the setting keeps BF16.
bool TakesCodes(const weights::ModelSpec& spec, const model::ModelWeights& weights, Int8Activations setting);

// The form of MLA that the kernels of prompts have, and that of decode. Grouped queries have one form under both names.
absl::Status CheckUnabsorbed(const weights::ModelSpec& spec, model::MlaForm form);
absl::Status CheckAbsorbed(const weights::ModelSpec& spec, model::MlaForm form);

}  // namespace moestro::engine
