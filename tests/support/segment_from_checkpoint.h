// A weight segment in ordinary memory, packed from a checkpoint: for tests that need a model but no weight store.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/weights/segment.h"
#include "tests/support/aligned_memory.h"

namespace moestro {

struct OwnedSegment {
  AlignedMemory memory;  // the memory of `segment`
  std::unique_ptr<const weights::WeightSegment> segment;
};

// The model's settings come from the checkpoint's config.json; generation is 1. Errors of Checkpoint, CheckInventory
// and PackCheckpoint.
absl::StatusOr<OwnedSegment> BuildSegmentInMemory(const std::string& checkpoint_dir, int threads = 2);

}  // namespace moestro
