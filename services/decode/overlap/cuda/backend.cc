#include "services/decode/overlap/cuda/backend.h"

#include "common/base/status.h"
#include "common/device/launch_check.h"
#include "common/kernels/cuda/call.h"
#include "common/kernels/cuda/elementwise.h"
#include "services/decode/overlap/cuda/cuda_decode.h"
#include "services/decode/overlap/cuda/cuda_hot_compute.h"

namespace moestro {

absl::StatusOr<CudaDecodeBackend> OpenCudaDecode(const CudaDecodeOptions& options, const ModelSpec& spec,
                                                 const ModelWeights& weights) {
  MOE_RETURN_IF_ERROR(CudaDecode::CheckSupported(spec));
  CudaDecodeBackend backend;
  MOE_ASSIGN_OR_RETURN(backend.device, device::OpenCudaDevice(options.device));
  // Before gigabytes are copied.
  MOE_RETURN_IF_ERROR(device::CheckLaunch(*backend.device, [](const float* x, float* sum, void* native) {
    return cuda::LaunchStatus(cuda::LaunchAdd(x, 1, sum, static_cast<cuda::Stream>(native)));
  }));
  const CudaDecode::Options decode{
      .max_rows = options.max_rows, .max_sequences = options.max_sequences, .kv_pages = options.kv_pages};
  MOE_ASSIGN_OR_RETURN(backend.compute, CudaDecode::Create(*backend.device, spec, weights, decode));
  if (options.hot_experts) {
    MOE_ASSIGN_OR_RETURN(backend.hot, CudaHotCompute::Create(*backend.device, spec, options.max_sequences));
  }
  return backend;
}

}  // namespace moestro
