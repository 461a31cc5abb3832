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
  MOE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(checkpoint_dir));
  const CheckpointDocuments& documents = checkpoint.documents();
  MOE_ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(documents.config_json, documents.tokenizer_json));
  MOE_ASSIGN_OR_RETURN(const auto inventory, CheckInventory(checkpoint, spec));
  MOE_ASSIGN_OR_RETURN(const Plan plan, MakePlan(inventory, spec));
  OwnedSegment owned = {AlignedMemory(SegmentWriter::RequiredBytes(plan.tensors)), nullptr};
  MOE_ASSIGN_OR_RETURN(const auto writer, SegmentWriter::CreateInMemory(owned.memory.data(), owned.memory.size(), 1,
                                                                        checkpoint.fingerprint(), spec, plan.tensors));
  MOE_RETURN_IF_ERROR(PackCheckpoint(checkpoint, plan, *writer, {.threads = threads}));
  MOE_ASSIGN_OR_RETURN(owned.segment, WeightSegment::FromMemory(owned.memory.data(), owned.memory.size()));
  return owned;
}

}  // namespace moestro
