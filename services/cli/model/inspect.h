// The results of `moestro inspect`, as JSON that also prints as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "common/weights/model_spec.h"

namespace moestro::cli {

// Describes a checkpoint directory, or a single config.json: family, shapes, parameters, bytes by kind, and the segment
// it needs. `instance`: the node whose segments are searched for this checkpoint.
absl::StatusOr<nlohmann::ordered_json> InspectCheckpoint(const std::string& path, const std::string& instance);

// The shapes only, from a checkpoint directory or a config.json.
absl::StatusOr<weights::ModelSpec> ReadModelSpec(const std::string& path);

// Describes a weight segment in shared memory. `verify` reads all of its data and compares checksums.
absl::StatusOr<nlohmann::ordered_json> InspectSegment(const std::string& name, bool verify);

nlohmann::ordered_json ShapesJson(const weights::ModelSpec& spec);

}  // namespace moestro::cli
