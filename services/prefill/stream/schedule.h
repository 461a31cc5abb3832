// What a streamed run does, decided before it begins: which steps in which order, which module is staged where, and
// what must have been released before. Nothing is decided on the way, so threads only wait for each other's progress,
// memory never fragments, and a simulated run is the same run.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/math.h"
#include "common/engine/prefill_compute.h"

namespace moestro::prefill {

// One staging of a module.
struct Staging {
  const engine::Module* module = nullptr;
  int64_t offset = 0;        // in the expert ring's memory, or in that of dense weights
  int64_t after_step = -1;   // must have been released before: its memory, or its events, are needed; -1: nothing
  int64_t released_by = -1;  // the step after which the memory is free
};

// What is launched on the device as one, and when.
struct Step : engine::LayerStep {
  IndexRange uses = {};      // stagings whose weights it reads
  IndexRange releases = {};  // stagings whose memory is free when it is done
  bool ends_layer = false;
  bool ends_pass = false;
  int64_t staged = 0;       // stagings that must be complete: all below this index
  int64_t after_step = -1;  // must have been released before it is launched: what it overwrites or reads; -1: nothing
};

struct ScheduleOptions {
  int64_t passes = 1;
  int64_t ring_slots = 2;   // experts that fit; 2 or more
  int64_t dense_bytes = 0;  // for all modules but experts
  int64_t max_experts_together = engine::kMaxExpertsTogether;
  // Whether ranks exchange the rows of experts. Then a layer's first experts compute the rank's own rows before the
  // kDispatch step, which waits for the others' rows, and its last experts compute the others' rows first: what these
  // made is sent while they compute the own rows, and the shared expert after them, before the kCombine step. The ring
  // holds such experts longer, up to half of it.
  bool exchanges = false;
};

struct Schedule {
  std::vector<Staging> stagings;  // in the order of loading, which is that of first use
  std::vector<Step> steps;
  int64_t slot_bytes = 0;  // of a slot of the ring
  int64_t ring_slots = 0;
  int64_t dense_bytes = 0;
  int64_t staging_window = 0;  // stagings i and i + staging_window are never in memory together: they may share events
};

// Experts that are computed by one launch: enough to be worth one, and few enough that with as many again being loaded
// and as many waiting the ring is not full.
int64_t ExpertsTogether(int64_t ring_slots, int64_t max_experts_together = engine::kMaxExpertsTogether);

// `modules` (ListModules, or that with fewer experts or without the head) must outlive the schedule. The head takes
// part in the last pass only. RESOURCE_EXHAUSTED if a module does not fit into dense_bytes.
absl::StatusOr<Schedule> MakeSchedule(const std::vector<engine::Module>& modules, const ScheduleOptions& options);

// Bytes of a slot: the largest expert. 0 if there are none.
int64_t SlotBytes(const std::vector<engine::Module>& modules);

}  // namespace moestro::prefill
