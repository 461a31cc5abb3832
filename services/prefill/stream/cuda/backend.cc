#include "services/prefill/stream/cuda/backend.h"

#include <utility>

#include "common/base/status.h"
#include "common/device/launch_check.h"
#include "common/kernels/cuda/elementwise.h"
#include "services/prefill/stream/cuda/cuda_compute.h"

namespace moestro {

absl::StatusOr<CudaBackend> OpenCudaBackend(const device::CudaDeviceOptions& options, const ModelSpec& spec,
                                            const ModelWeights& weights) {
  MOE_RETURN_IF_ERROR(CudaCompute::CheckSupported(spec));
  CudaBackend backend;
  MOE_ASSIGN_OR_RETURN(backend.device, device::OpenCudaDevice(options));
  MOE_RETURN_IF_ERROR(device::CheckLaunch(*backend.device, [](const float* x, float* sum, void* native) {
    return LaunchStatus(cuda::LaunchAdd(x, 1, sum, static_cast<cuda::Stream>(native)));
  }));
  backend.compute = std::make_unique<CudaCompute>(*backend.device, spec, weights);
  return backend;
}

}  // namespace moestro
