// Cuts a plan into pieces of work for threads.
#pragma once

#include <cstdint>
#include <vector>

#include "common/checkpoint/segment_plan.h"

namespace moestro::store {

// Slices [first_slice, first_slice + slice_count) of one tensor: at most 4 MiB of the segment, or one slice if that is
// larger; of a transposed one, those that are read together.
struct PackJob {
  size_t tensor = 0;
  int64_t first_slice = 0;
  int64_t slice_count = 0;
  int64_t bytes = 0;  // written to the segment
};

// Covers every slice once, in the order of the data in the files, so that reads go forward.
std::vector<PackJob> MakeJobs(const checkpoint::Plan& plan);

}  // namespace moestro::store
