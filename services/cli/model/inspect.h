// What `moestro inspect` finds out, as JSON that prints as text too.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "common/weights/model_spec.h"

namespace moestro {

// A checkpoint directory, or a single config.json: family, shapes, parameters, bytes by kind, and the segment it would
// need. `instance`: the node whose segments are searched for this checkpoint.
absl::StatusOr<nlohmann::ordered_json> InspectCheckpoint(const std::string& path, const std::string& instance);

// The shapes alone: of a checkpoint directory, or a config.json.
absl::StatusOr<ModelSpec> ReadModelSpec(const std::string& path);

// A weight segment in shared memory. `verify` reads all of its data and compares checksums.
absl::StatusOr<nlohmann::ordered_json> InspectSegment(const std::string& name, bool verify);

nlohmann::ordered_json ShapesJson(const ModelSpec& spec);

}  // namespace moestro
