#include "services/decode/overlap/cuda/backend.h"

namespace moestro {

absl::StatusOr<CudaDecodeBackend> OpenCudaDecode(const CudaDecodeOptions&, const ModelSpec&, const ModelWeights&) {
  return absl::UnimplementedError("this build has no CUDA; build with the preset cuda (needs nvcc)");
}

}  // namespace moestro
