#include "services/prefill/distributed/cuda/backend.h"

namespace moestro {

absl::StatusOr<std::unique_ptr<RankKernels>> NewCudaRankKernels(device::Device&, const ModelSpec&,
                                                                const ModelWeights&) {
  return absl::UnimplementedError("this build has no CUDA; build with the preset cuda (needs nvcc)");
}

}  // namespace moestro
