// What config.json says of a model in the words of its family. Internal to this folder.
#pragma once

#include <cstdint>

#include "common/weights/model_spec.h"
#include "services/weight_store/checkpoint/json.h"

namespace moestro {

// Each reads what other families do not have or call otherwise, and checks it; ModelSpec's fields that ParseModelSpec
// reads for all families are there already.
void ReadDeepSeek(JsonFields& config, ModelSpec* spec);  // deepseek_v3, kimi_k2
void ReadQwen3Moe(JsonFields& config, ModelSpec* spec);

// UNIMPLEMENTED, naming the field, unless value is a multiple of factor.
void CheckMultiple(JsonFields& config, const char* key, int64_t value, int64_t factor);
// Relations between the numbers of experts, which config.json calls `experts_key`.
void CheckExpertCounts(JsonFields& config, const char* experts_key, const ModelSpec& spec);

}  // namespace moestro
