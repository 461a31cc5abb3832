// Range checks of flags, with uniform messages.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace moestro {

// INVALID_ARGUMENT unless low <= value <= high: "--flag 7: must be 1 to 5".
inline absl::Status CheckFlagRange(const std::string& flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(flag + " " + std::to_string(value) + ": must be " + std::to_string(low) + " to " +
                                    std::to_string(high));
}

}  // namespace moestro
