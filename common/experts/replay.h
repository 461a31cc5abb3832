// A cache of experts on a recording of passes, without the model.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/experts/expert_cache.h"
#include "common/model/routing_trace.h"

namespace moestro {

struct CacheCounts {
  int64_t hits = 0;      // experts that a pass took in a layer and that were held
  int64_t misses = 0;    // and that were not
  int64_t row_hits = 0;  // the same by rows that take the expert
  int64_t row_misses = 0;
  int64_t loads = 0;  // experts that were loaded

  double HitRate() const { return Share(hits, misses); }
  double RowHitRate() const { return Share(row_hits, row_misses); }

 private:
  static double Share(int64_t part, int64_t rest) {
    return part + rest == 0 ? 0 : static_cast<double>(part) / static_cast<double>(part + rest);
  }
};

// All passes of the file that generate tokens only, or with `prompts` all passes, through a cache of so many slots a
// layer that begins empty. Errors are the file's.
absl::StatusOr<CacheCounts> ReplayCache(const std::string& path, int64_t slots, int64_t loads_per_pass, bool prompts,
                                        const ExpertCache::NewPolicy& new_policy);

}  // namespace moestro
