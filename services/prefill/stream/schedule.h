// What a streamed run does, decided before it begins: which steps in which order, which module is staged where, and
// what must have been released before. Nothing is decided on the way, so threads only wait for each other's progress,
// memory never fragments, and a simulated run is the same run.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/math.h"
#include "services/prefill/stream/modules.h"

namespace moestro {

// One staging of a module.
struct Staging {
  const Module* module = nullptr;
  int64_t offset = 0;        // in the expert ring's memory, or in that of dense weights
  int64_t after_step = -1;   // must have been released before: its memory, or its events, are needed; -1: nothing
  int64_t released_by = -1;  // the step after which the memory is free
};

// kDispatch and kCombine are exchanges with other ranks, around a layer's experts (../distributed).
enum class StepKind { kEmbed, kAttention, kDense, kRoute, kDispatch, kExperts, kCombine, kSharedExpert, kHead };
const char* StepName(StepKind kind);

// What is launched on the device as one.
struct Step {
  StepKind kind = StepKind::kEmbed;
  int64_t pass = 0;
  int64_t layer = 0;
  IndexRange uses = {};      // stagings whose weights it reads
  int64_t staged = 0;        // stagings that must be complete: all below this index
  IndexRange releases = {};  // stagings whose memory is free when it is done
  int64_t after_step = -1;   // must have been released before it is launched: what it overwrites or reads; -1: nothing
  bool ends_layer = false;
  bool ends_pass = false;
};

// Experts that one launch computes at most: more gain nothing.
inline constexpr int64_t kMaxExpertsTogether = 16;

struct ScheduleOptions {
  int64_t passes = 1;
  int64_t ring_slots = 2;   // experts that fit; 2 or more
  int64_t dense_bytes = 0;  // for all modules but experts
  int64_t max_experts_together = kMaxExpertsTogether;
  bool exchanges = false;  // whether there are steps kDispatch and kCombine
};

struct Schedule {
  std::vector<Staging> stagings;  // in the order of loading, which is that of first use
  std::vector<Step> steps;
  int64_t slot_bytes = 0;  // of a slot of the ring
  int64_t ring_slots = 0;
  int64_t dense_bytes = 0;
  int64_t staging_window = 0;  // stagings i and i + staging_window are never in memory together: they may share events
};

// Layers whose KV may be on the device at once: one is computed while the other's is on its way to the host. The n-th
// attention step of a run has buffer n mod kKvBuffers.
inline constexpr int64_t kKvBuffers = 2;

// Experts that are computed by one launch: enough to be worth one, and few enough that with as many again being loaded
// and as many waiting the ring is not full.
int64_t ExpertsTogether(int64_t ring_slots, int64_t max_experts_together = kMaxExpertsTogether);

// `modules` (ListModules, or that with fewer experts or without the head) must outlive the schedule. The head takes
// part in the last pass only. RESOURCE_EXHAUSTED if a module does not fit into dense_bytes.
absl::StatusOr<Schedule> MakeSchedule(const std::vector<Module>& modules, const ScheduleOptions& options);

// Bytes of a slot: the largest expert. 0 if there are none.
int64_t SlotBytes(const std::vector<Module>& modules);

}  // namespace moestro
