// Names of the shared-memory objects of one running node. One machine can run several nodes (instances).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace moestro {

inline constexpr const char kSharedMemoryPrefix[] = "moestro.";

// 1 to 32 letters, digits, '-' or '_'; INVALID_ARGUMENT otherwise.
absl::Status ValidateInstanceName(const std::string& instance);

// moestro.<instance>.weights.<first 12 hex digits of the fingerprint>.<generation>
std::string WeightSegmentName(const std::string& instance, const std::string& fingerprint, uint64_t generation);
// moestro.<instance>.kv.<epoch>
std::string KvPoolName(const std::string& instance, uint64_t epoch);
// moestro.<instance>. : the prefix of all objects of one instance
std::string InstancePrefix(const std::string& instance);

}  // namespace moestro
