// The model to be made, as its config.json says: a published one, with a preset's and the options' changes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "common/weights/model_spec.h"
#include "services/cli/model/make_model/make_model.h"

namespace moestro {

struct MadeModel {
  nlohmann::json config;   // config.json, with the keys of the published file
  ModelSpec spec;          // what it says
  int64_t mtp_layers = 0;  // 0 or 1, multi-token prediction, at layer index spec.num_layers
  int64_t shard_bytes = 0;
  bool fp8 = true;
};

// INVALID_ARGUMENT, naming the flag, for an unknown preset or weight type and for numbers out of range.
absl::StatusOr<MadeModel> ResolveModel(const MakeModelOptions& options);

std::string ConfigJson(const MadeModel& model);
std::string GenerationConfigJson();

}  // namespace moestro
