// The results of `moestro inspect`, as JSON that also prints as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "common/weights/model_spec.h"

namespace moestro::cli {

struct InspectOptions {
  std::string instance = "default";    // the node whose segments are searched for this checkpoint
  double memory_bytes_per_second = 0;  // that decode reads; 0: measured, which takes some 0.3 s and 256 MB
  double operations_per_second = 0;    // multiplications and additions of products; 0: measured, some 0.2 s
};

// Describes a model: family, shapes, parameters, bytes by kind, the segment it needs, what fits where, and how fast
// decode and prefill can be at best. `model`: a checkpoint's directory, a config.json, org/name in the cache of
// downloads, or the name of a published model; of the last, only the config is known.
absl::StatusOr<nlohmann::ordered_json> InspectCheckpoint(const std::string& model, const InspectOptions& options);

// The shapes only.
absl::StatusOr<weights::ModelSpec> ReadModelSpec(const std::string& model);

// INVALID_ARGUMENT, naming --model: no layer has routed experts, whose work or exchange `what` would be about.
absl::Status CheckHasExperts(const weights::ModelSpec& spec, const std::string& model, const std::string& what);

// Describes a weight segment in shared memory. `verify` reads all of its data and compares checksums.
absl::StatusOr<nlohmann::ordered_json> InspectSegment(const std::string& name, bool verify);

nlohmann::ordered_json ShapesJson(const weights::ModelSpec& spec);

}  // namespace moestro::cli
