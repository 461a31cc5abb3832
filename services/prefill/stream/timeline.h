// What a streamed run did when, as a trace for chrome://tracing and Perfetto, and in numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace moestro::prefill {

struct Span {
  const char* name = "";
  int64_t pass = 0;
  int64_t layer = 0;
  int64_t index = 0;  // first expert, or slice of the head
  int64_t bytes = 0;
  double begin = 0;  // seconds
  double end = 0;
};

// Each lane is written by one thread.
struct Timeline {
  enum Lane { kLoads, kSlotWaits, kModel, kStalls, kUnloads, kExchanges, kExchangeWaits, kLanes };
  std::vector<Span> lanes[kLanes];
};

// Of one of the devices that a prompt was computed on.
struct DeviceTimeline {
  std::string name;
  const Timeline* timeline = nullptr;
  double begin = 0;  // of the run, on the device's clock
};

// JSON, times relative to `begin`. Of several devices: a process for each.
std::string ChromeTrace(const Timeline& timeline, double begin);
std::string ChromeTrace(std::span<const DeviceTimeline> devices);
// INVALID_ARGUMENT names the file that cannot be written.
absl::Status WriteChromeTrace(const Timeline& timeline, double begin, const std::string& path);
absl::Status WriteChromeTrace(std::span<const DeviceTimeline> devices, const std::string& path);

// Of one run, or added up over several.
struct StreamCounters {
  int64_t runs = 0;
  int64_t passes = 0;
  int64_t streamed_bytes = 0;
  int64_t staged_bytes = 0;      // of these, from memory that was not registered (yet), through pinned buffers
  int64_t pageable_bytes = 0;    // and where these could not be pinned either
  double load_seconds = 0;       // the load stream copied
  double slot_wait_seconds = 0;  // the loader waited for memory to be released
  double compute_seconds = 0;    // the compute stream worked
  double stall_seconds = 0;      // it waited for weights
  double wall_seconds = 0;
  int64_t ring_slots = 0;          // of the last run
  int64_t max_ring_occupancy = 0;  // slots in use at once, of the last run
  // Of runs on several devices, whose times are those of the one that took longest.
  int64_t devices = 1;               // of the last run
  int64_t lost_devices = 0;          // that failed, stalled or were taken back
  int64_t repeated_layers = 0;       // that were begun again because a device was lost
  int64_t link_bytes = 0;            // that devices sent each other
  double exchange_seconds = 0;       // exchanges were under way
  double exchange_wait_seconds = 0;  // the compute stream waited for them; meanwhile it had nothing else to do

  void Add(const StreamCounters& run);
};

}  // namespace moestro::prefill
