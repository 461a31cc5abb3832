// How the device's memory is shared between activations, dense weights and the expert ring.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "services/prefill/stream/schedule.h"

namespace moestro::prefill {

struct MemoryLimits {
  int64_t device_bytes = 0;                // what may be used in all
  int64_t dense_bytes = int64_t{1} << 30;  // a layer's dense weights and the next one's (paper, section 3.1: ~1 GB)
  int64_t ring_slots = 0;                  // 0: as many as fit, at most a layer's experts
  // A prompt is cut into passes only where memory forces it, and never into shorter ones than this: each pass streams
  // all weights again. 16K tokens are what 13 s of PCIe 5 x16 for DeepSeek-V3 are still worth.
  int64_t min_pass_rows = 16384;
  int64_t max_experts_together = engine::kMaxExpertsTogether;  // experts of the ring that one launch computes
  // What whoever set these can do where they do not suffice, as errors end with; by default the flags of
  // moestro-prefill.
  const char* remedy =
      "give it more (--device-memory), fewer dense bytes (--device-dense-bytes) or shorter passes (--min-pass-tokens)";
};

struct MemoryPlan {
  int64_t passes = 1;
  int64_t pass_rows = 0;  // of the longest
  int64_t ring_slots = 0;
  int64_t spare_bytes = 0;  // of what may be used: left by the longest ring
};

// For a prompt of `rows` rows. As few passes as possible, then as long a ring as fits beside them, from two slots (one
// computed, one loaded) to all experts of a layer. activation_bytes(rows): of a pass. RESOURCE_EXHAUSTED says what
// is missing, and limits.remedy.
absl::StatusOr<MemoryPlan> PlanMemory(int64_t rows, int64_t experts, int64_t slot_bytes, const MemoryLimits& limits,
                                      absl::FunctionRef<int64_t(int64_t rows)> activation_bytes);

}  // namespace moestro::prefill
