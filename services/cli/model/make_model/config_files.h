// The model to generate, as described by its config.json: a published one, changed by a preset and the options.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "common/weights/model_spec.h"
#include "services/cli/model/make_model/make_model.h"

namespace moestro::cli {

struct MadeModel {
  nlohmann::json config;    // config.json, with the keys of the published file
  weights::ModelSpec spec;  // the contents of `config`
  int64_t mtp_layers = 0;   // 0 or 1, multi-token prediction, at layer index spec.num_layers
  int64_t shard_bytes = 0;
  bool fp8 = true;
};

// INVALID_ARGUMENT, naming the flag: an unknown preset or weight type, or a value out of range.
absl::StatusOr<MadeModel> ResolveModel(const MakeModelOptions& options);

std::string ConfigJson(const MadeModel& model);
std::string GenerationConfigJson();

}  // namespace moestro::cli
