// Adds template lines to rendering errors.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moestro::text::jinja {

// Adds "template line N" to an error that has no line yet. OK stays OK.
absl::Status AtLine(const absl::Status& status, int line);
template <typename T>
absl::StatusOr<T> AtLine(absl::StatusOr<T> result, int line) {
  if (result.ok()) return result;
  return AtLine(result.status(), line);
}

// RESOURCE_EXHAUSTED: the nesting of evaluation exceeds its limit.
absl::Status TooDeep(int line);

}  // namespace moestro::text::jinja
