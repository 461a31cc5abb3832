// Fills a weight segment from a checkpoint with several threads.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "common/checkpoint/segment_plan.h"

namespace moestro::store {

struct PackOptions {
  int threads = 1;
  // Both may be empty. The thread that called PackCheckpoint calls both, between pieces of at most 4 MiB.
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes of the segment
  std::function<absl::Status()> interrupt = {};                    // an error stops the work and becomes its result
};

// Fills and publishes the segment: on OK it is READY. Its bytes do not depend on the number of threads. REQUIRES:
// `plan` was made from `checkpoint`, and `writer` from plan.tensors. Uses memory of one row group per thread besides
// the segment.
// On any error the segment is FAILED. INVALID_ARGUMENT, naming file and tensor: a NaN in FP8 weights; a scale of
// FP8 or I8 that is negative or not finite; a block's scale or min, or a norm, router weight or bias, that is not
// finite. DATA_LOSS: a file became shorter. Other read errors come from the system.
absl::Status PackCheckpoint(const checkpoint::Checkpoint& checkpoint, const checkpoint::Plan& plan,
                            weights::SegmentWriter& writer, const PackOptions& options);

}  // namespace moestro::store
