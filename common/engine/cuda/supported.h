// What models the CUDA kernels can compute, and in which form. Errors are UNIMPLEMENTED, and name what they have.
#pragma once

#include "absl/status/status.h"
#include "common/model/engine.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Prompts on one device, prompts that ranks share, and steps of decode.
absl::Status CheckPrefillSupported(const ModelSpec& spec);
absl::Status CheckRanksSupported(const ModelSpec& spec);
absl::Status CheckDecodeSupported(const ModelSpec& spec);

// The form of MLA that the kernels of prompts have, and that of decode. Grouped queries have one form under both names.
absl::Status CheckUnabsorbed(const ModelSpec& spec, MlaForm form);
absl::Status CheckAbsorbed(const ModelSpec& spec, MlaForm form);

}  // namespace moestro
