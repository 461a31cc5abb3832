// Finds how long the paper's requests must be to take a given time alone.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "loadtest/run/record.h"
#include "loadtest/workloads/paper.h"

namespace moestro::loadtest {

// Sets the prompt's length of prefill requests and the answer's length of decode requests so that each takes about
// `seconds` alone, as far as the context goes. `run` sends one request alone and waits for it.
absl::Status CalibratePaper(double seconds, int64_t max_context_tokens,
                            const std::function<absl::StatusOr<Record>(const Request&)>& run, PaperOptions* options);

}  // namespace moestro::loadtest
