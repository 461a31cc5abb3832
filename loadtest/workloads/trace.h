// Traces of requests: text files with one JSON object per line (described in README.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro::loadtest {

struct TraceEntry {
  double arrival = 0;  // seconds since the trace began
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  std::string prefix_id;      // requests with the same id share their first tokens
  int64_t prefix_tokens = 0;  // length of that prefix, included in prompt_tokens; 0: none
};

// In order of arrival. INVALID_ARGUMENT names the line and the error. Empty lines and lines that begin with # are
// skipped.
absl::StatusOr<std::vector<TraceEntry>> ParseTrace(std::string_view text);

}  // namespace moestro::loadtest
