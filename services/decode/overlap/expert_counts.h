// Totals of what passes over layers did with routed experts.
#pragma once

#include <cstdint>

#include "common/base/mutex.h"

namespace moestro::decode {

struct ExpertCounts {
  int64_t hits = 0;  // experts that passes took and that the device held
  int64_t misses = 0;
  int64_t on_device = 0;  // of all, computed there
  int64_t near_data = 0;  // of all, computed by what stands for processors near the data
  int64_t loads = 0;
  int64_t loads_ahead = 0;     // of these, of experts that were foreseen
  int64_t foreseen_hits = 0;   // of hits, loaded ahead
  double planned_seconds = 0;  // makespans
  double measured_seconds = 0;
};

class ExpertTotals {  // thread-safe
 public:
  void Add(const ExpertCounts& pass) {
    MutexLock lock(mutex_);
    totals_.hits += pass.hits;
    totals_.misses += pass.misses;
    totals_.on_device += pass.on_device;
    totals_.near_data += pass.near_data;
    totals_.loads += pass.loads;
    totals_.loads_ahead += pass.loads_ahead;
    totals_.foreseen_hits += pass.foreseen_hits;
    totals_.planned_seconds += pass.planned_seconds;
    totals_.measured_seconds += pass.measured_seconds;
  }
  void Clear() {
    MutexLock lock(mutex_);
    totals_ = {};
  }
  ExpertCounts Get() const {
    MutexLock lock(mutex_);
    return totals_;
  }

 private:
  mutable Mutex mutex_;
  ExpertCounts totals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::decode
