// A prompt whose weights stream through one GPU, beside decode on another GPU and the CPU: both read the same DRAM. The
// roles' own simulations in one virtual time (common/device/sim/world.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/prefill/stream/simulate.h"

namespace moestro::cli {

struct ConcurrentLoad {
  int64_t prompt_tokens = 0;  // of the prompt; 0: none
  int64_t sequences = 0;      // that decode; 0: none
  int64_t context = 0;        // that each has at first
  int64_t steps = 0;          // tokens that each generates
};

struct ConcurrentSeconds {
  double prompt = 0;  // until the prompt is computed
  double decode = 0;  // until all steps are done

  double total() const { return prompt > decode ? prompt : decode; }
};

// Whether the machine has the numbers; INVALID_ARGUMENT names those that are missing.
absl::Status CheckConcurrency(const device::HardwareSpec& hardware);

// FP8 weights. Both begin together; several sequences decode in two micro-batches. Errors: CheckConcurrency's.
absl::StatusOr<ConcurrentSeconds> SimulateConcurrency(const device::HardwareSpec& hardware,
                                                      const weights::ModelSpec& spec, const ConcurrentLoad& load,
                                                      const prefill::MemoryLimits& limits,
                                                      const engine::CostOptions& costs);

}  // namespace moestro::cli
