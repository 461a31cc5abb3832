// Finds the lengths at which the paper's requests take a given time alone.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "loadtest/records/record.h"
#include "loadtest/workloads/paper.h"

namespace moestro::loadtest {

// Sets the prompt length of prefill requests and the answer length of decode requests so that each takes about
// `seconds` alone, limited by the context. `run` sends one request alone and waits for it.
absl::Status CalibratePaper(double seconds, int64_t max_context_tokens,
                            const std::function<absl::StatusOr<Record>(const Request&)>& run, PaperOptions* options);

}  // namespace moestro::loadtest
