#include "services/prefill/stream/memory_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/math.h"

namespace moestro::prefill {

absl::StatusOr<MemoryPlan> PlanMemory(int64_t rows, int64_t experts, int64_t slot_bytes, const MemoryLimits& limits,
                                      absl::FunctionRef<int64_t(int64_t rows)> activation_bytes) {
  constexpr int64_t kMinSlots = 2;
  const int64_t min_slots = limits.ring_slots > 0 ? limits.ring_slots : kMinSlots;
  const int64_t max_slots = limits.ring_slots > 0 ? limits.ring_slots : std::max(experts, kMinSlots);
  const int64_t max_passes = std::max<int64_t>(1, rows / std::max<int64_t>(limits.min_pass_rows, 1));
  int64_t wanted = 0;
  for (int64_t passes = 1; passes <= max_passes; ++passes) {
    const int64_t pass_rows = CeilDiv(rows, passes);
    const int64_t fixed = limits.dense_bytes + activation_bytes(pass_rows);
    wanted = fixed + min_slots * slot_bytes;
    if (wanted > limits.device_bytes) continue;
    const int64_t fitting = slot_bytes > 0 ? (limits.device_bytes - fixed) / slot_bytes : max_slots;
    const int64_t slots = std::min(fitting, max_slots);
    return MemoryPlan{passes, pass_rows, slots, limits.device_bytes - fixed - slots * slot_bytes};
  }
  return absl::ResourceExhaustedError(absl::StrFormat(
      "a streamed prefill of %d tokens needs %d bytes of device memory%s, and %d are free; %s", rows, wanted,
      max_passes > 1 ? absl::StrFormat(", even in %d passes", max_passes) : "", limits.device_bytes, limits.remedy));
}

}  // namespace moestro::prefill
