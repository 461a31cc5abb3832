// Names of the shared-memory objects of one running node. Several nodes (instances) can live on one machine.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace moestro {

inline constexpr const char kSharedMemoryPrefix[] = "moestro.";

// Letters, digits, '-' and '_', 1..32 of them. INVALID_ARGUMENT otherwise.
absl::Status ValidateInstanceName(const std::string& instance);

// moestro.<instance>.weights.<first 12 hex digits of the fingerprint>.<generation>
std::string WeightSegmentName(const std::string& instance, const std::string& fingerprint, uint64_t generation);
// moestro.<instance>.kv.<epoch>
std::string KvPoolName(const std::string& instance, uint64_t epoch);
// moestro.<instance>. : what belongs to one instance
std::string InstancePrefix(const std::string& instance);

}  // namespace moestro
