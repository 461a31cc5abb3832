#include "services/prefill/distributed/cuda/backend.h"

#include "common/base/status.h"
#include "services/prefill/distributed/cuda/cuda_rank_kernels.h"

namespace moestro {

absl::StatusOr<std::unique_ptr<RankKernels>> NewCudaRankKernels(device::Device& device, const ModelSpec& spec,
                                                                const ModelWeights& weights) {
  MOE_RETURN_IF_ERROR(CudaRankKernels::CheckSupported(spec));
  return std::make_unique<CudaRankKernels>(device, spec, weights);
}

}  // namespace moestro
