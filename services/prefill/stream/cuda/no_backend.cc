#include "services/prefill/stream/cuda/backend.h"

namespace moestro {

absl::StatusOr<CudaBackend> OpenCudaBackend(const device::CudaDeviceOptions&, const ModelSpec&, const ModelWeights&) {
  return absl::UnimplementedError("this build has no CUDA; build with the preset cuda (needs nvcc)");
}

}  // namespace moestro
