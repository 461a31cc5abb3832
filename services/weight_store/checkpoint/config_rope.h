// Position encoding settings of config.json. Internal to this folder.
#pragma once

#include "common/weights/model_spec.h"
#include "services/weight_store/checkpoint/json.h"

namespace moestro {

// Fills rope_theta and yarn of `spec`. Problems go to the status of `config`.
void ReadRope(JsonFields& config, ModelSpec* spec);

}  // namespace moestro
