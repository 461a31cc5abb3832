// When a refused client should try again: a payload of the status, so that it survives all layers on its way to the
// client. gRPC sends it as the trailing metadata `retry-after`, HTTP as the header Retry-After.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "services/router/admission/clock.h"

namespace moestro::router {

// The name of the metadata and of the header; the value is in whole seconds.
inline constexpr char kRetryAfter[] = "retry-after";

// The status with that payload; `wait` is rounded up to whole seconds, at least 1.
absl::Status WithRetryAfter(absl::Status status, RequestClock::Duration wait);

// Seconds; nullopt if the status has no such payload.
std::optional<int64_t> RetryAfterSeconds(const absl::Status& status);

}  // namespace moestro::router
