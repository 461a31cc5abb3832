// Packs a checkpoint into memory.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "common/checkpoint/checkpoint.h"
#include "common/weights/segment.h"
#include "common/weights/segment_writer.h"
#include "services/weight_store/pack/packer.h"
#include "tests/support/aligned_memory.h"

namespace moestro {

// A segment that a test packs into memory.
struct Packed {
  AlignedMemory memory;
  std::unique_ptr<SegmentWriter> writer;
  absl::Status status;

  SegmentState state() const { return static_cast<SegmentState>(writer->header().state.load()); }
  std::unique_ptr<const WeightSegment> Open() const;
};
Packed PackInMemory(const Checkpoint& checkpoint, const ModelSpec& spec, const PackOptions& options = {});

}  // namespace moestro
