#include "tests/services/weight_store/pack/pack_in_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "common/checkpoint/inventory.h"
#include "common/checkpoint/segment_plan.h"

namespace moestro::store {

std::unique_ptr<const weights::WeightSegment> Packed::Open() const {
  auto segment = weights::WeightSegment::FromMemory(memory.data(), memory.size());
  EXPECT_TRUE(segment.ok()) << segment.status();
  return std::move(segment).value();
}

Packed PackInMemory(const checkpoint::Checkpoint& checkpoint, const weights::ModelSpec& spec,
                    const PackOptions& options) {
  const auto inventory = checkpoint::CheckInventory(checkpoint, spec);
  EXPECT_TRUE(inventory.ok()) << inventory.status();
  const auto plan = checkpoint::MakePlan(*inventory, spec);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return PackInMemory(checkpoint, *plan, spec, options);
}

Packed PackInMemory(const checkpoint::Checkpoint& checkpoint, const checkpoint::Plan& plan,
                    const weights::ModelSpec& spec, const PackOptions& options) {
  Packed packed{AlignedMemory(weights::SegmentWriter::RequiredBytes(plan.tensors)), nullptr, {}};
  auto writer = weights::SegmentWriter::CreateInMemory(packed.memory.data(), packed.memory.size(), 1,
                                                       std::string(32, '0'), spec, plan.tensors);
  EXPECT_TRUE(writer.ok()) << writer.status();
  packed.writer = std::move(writer).value();
  packed.status = PackCheckpoint(checkpoint, plan, *packed.writer, options);
  return packed;
}

}  // namespace moestro::store
