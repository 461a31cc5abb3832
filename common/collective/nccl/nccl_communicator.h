// Ranks on CUDA devices, connected by NCCL: device to device if the machine supports it, else by NCCL's own choice.
// Only for `cuda` devices. A region tells which ranks are present, dead or stalled, as without NCCL.
#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "common/collective/communicator.h"
#include "common/collective/shared/shared_communicator.h"

namespace moestro::collective {

// Identifies an NCCL group: one rank makes it and sends it to all.
using NcclId = std::array<char, 128>;
// UNAVAILABLE with NCCL's reason.
absl::StatusOr<NcclId> NewNcclId();

// As JoinRegion. Returns when all ranks have called it, each on the thread whose current CUDA device is the rank's.
// UNAVAILABLE with NCCL's reason; DEADLINE_EXCEEDED if a rank does not arrive within the time-out.
absl::StatusOr<std::unique_ptr<Communicator>> JoinNccl(const NcclId& id, const Region& region, int rank,
                                                       device::Device& device, const SharedOptions& options = {});

}  // namespace moestro::collective
