// Ranks on CUDA devices, with NCCL between them: device to device where the machine can, else by way NCCL knows best.
// For `cuda` devices only. Who is there, who died and who stalls is known through a region, as without NCCL.
#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "common/collective/communicator.h"
#include "common/collective/shared/shared_communicator.h"

namespace moestro::collective {

// Names a group of NCCL's: made by one rank, told to all.
using NcclId = std::array<char, 128>;
// UNAVAILABLE with NCCL's reason.
absl::StatusOr<NcclId> NewNcclId();

// As JoinRegion. Returns when all ranks have called it: on the thread whose current CUDA device is the rank's.
// UNAVAILABLE with NCCL's reason; DEADLINE_EXCEEDED if a rank has not come within the time-out.
absl::StatusOr<std::unique_ptr<Communicator>> JoinNccl(const NcclId& id, const Region& region, int rank,
                                                       device::Device& device, const SharedOptions& options = {});

}  // namespace moestro::collective
