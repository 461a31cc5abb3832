// Packs a checkpoint into memory.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "common/checkpoint/checkpoint.h"
#include "common/weights/segment.h"
#include "common/weights/segment_writer.h"
#include "services/weight_store/pack/packer.h"
#include "tests/support/aligned_memory.h"

namespace moestro::store {

// A segment that a test packs into memory.
struct Packed {
  AlignedMemory memory;
  std::unique_ptr<weights::SegmentWriter> writer;
  absl::Status status;

  weights::SegmentState state() const { return static_cast<weights::SegmentState>(writer->header().state.load()); }
  std::unique_ptr<const weights::WeightSegment> Open() const;
};
Packed PackInMemory(const checkpoint::Checkpoint& checkpoint, const weights::ModelSpec& spec,
                    const PackOptions& options = {});
Packed PackInMemory(const checkpoint::Checkpoint& checkpoint, const checkpoint::Plan& plan,
                    const weights::ModelSpec& spec, const PackOptions& options = {});

}  // namespace moestro::store
