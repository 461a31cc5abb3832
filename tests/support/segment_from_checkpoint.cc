#include "tests/support/segment_from_checkpoint.h"

#include <utility>

#include "common/base/status.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/inventory.h"
#include "common/checkpoint/segment_plan.h"
#include "services/weight_store/pack/packer.h"

namespace moestro {

absl::StatusOr<OwnedSegment> BuildSegmentInMemory(const std::string& checkpoint_dir, int threads) {
  MOE_ASSIGN_OR_RETURN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::Open(checkpoint_dir));
  const checkpoint::CheckpointDocuments& documents = checkpoint.documents();
  MOE_ASSIGN_OR_RETURN(const weights::ModelSpec spec,
                       checkpoint::ParseModelSpec(documents.config_json, documents.tokenizer_json));
  MOE_ASSIGN_OR_RETURN(const auto inventory, checkpoint::CheckInventory(checkpoint, spec));
  MOE_ASSIGN_OR_RETURN(const checkpoint::Plan plan, checkpoint::MakePlan(inventory, spec));
  OwnedSegment owned = {AlignedMemory(weights::SegmentWriter::RequiredBytes(plan.tensors)), nullptr};
  MOE_ASSIGN_OR_RETURN(const auto writer,
                       weights::SegmentWriter::CreateInMemory(owned.memory.data(), owned.memory.size(), 1,
                                                              checkpoint.fingerprint(), spec, plan.tensors));
  MOE_RETURN_IF_ERROR(store::PackCheckpoint(checkpoint, plan, *writer, {.threads = threads}));
  MOE_ASSIGN_OR_RETURN(owned.segment, weights::WeightSegment::FromMemory(owned.memory.data(), owned.memory.size()));
  return owned;
}

}  // namespace moestro
