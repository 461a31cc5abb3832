#include "common/engine/cuda/backend.h"

#include "common/base/status.h"
#include "common/device/launch_check.h"
#include "common/engine/cuda/cuda_batch.h"
#include "common/engine/cuda/cuda_decode.h"
#include "common/engine/cuda/cuda_prefill.h"
#include "common/engine/cuda/cuda_rank_kernels.h"
#include "common/engine/cuda/supported.h"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/modules.h"

namespace moestro::engine {
namespace {

// A device that has run a kernel: found out before gigabytes are copied. And that has loaded them all: what the driver
// may have to compile is no part of a request, in which a device without progress is given up.
absl::StatusOr<std::unique_ptr<device::Device>> OpenDevice(const device::CudaDeviceOptions& options) {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<device::Device> device, device::OpenCudaDevice(options));
  MOE_RETURN_IF_ERROR(device::CheckLaunch(*device, [](const float* x, float* sum, void* native) {
    return LaunchStatus(cuda::LaunchAdd(x, 1, sum, static_cast<cuda::Stream>(native)));
  }));
  MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LoadModules()));
  return device;
}

}  // namespace

absl::StatusOr<bool> CudaTakesFp8Inputs(int ordinal) {
  MOE_ASSIGN_OR_RETURN(const bool warps_do, device::CudaMultipliesFp8(ordinal));  // and makes the GPU the current one
  return warps_do || cuda::HasWgmma();
}

absl::StatusOr<CudaPrefillBackend> OpenCudaPrefill(const device::CudaDeviceOptions& options,
                                                   const weights::ModelSpec& spec, const model::ModelWeights& weights,
                                                   Int8Activations setting, bool fp8_inputs) {
  MOE_RETURN_IF_ERROR(CheckPrefillSupported(spec));
  MOE_RETURN_IF_ERROR(CheckWeightsSupported(spec, weights));
  CudaPrefillBackend backend;
  MOE_ASSIGN_OR_RETURN(backend.device, OpenDevice(options));
  backend.compute = std::make_unique<CudaPrefill>(*backend.device, spec, weights, setting, fp8_inputs);
  return backend;
}

absl::StatusOr<std::unique_ptr<RankKernels>> NewCudaRankKernels(device::Device& device, const weights::ModelSpec& spec,
                                                                const model::ModelWeights& weights,
                                                                Int8Activations setting, bool fp8_inputs) {
  MOE_RETURN_IF_ERROR(CheckRanksSupported(spec));
  return std::make_unique<CudaRankKernels>(device, spec, weights, setting, fp8_inputs);
}

absl::StatusOr<CudaDecodeBackend> OpenCudaDecode(const device::CudaDeviceOptions& device,
                                                 const weights::ModelSpec& spec, const model::ModelWeights& weights,
                                                 const CudaDecodeOptions& options) {
  MOE_RETURN_IF_ERROR(CheckDecodeSupported(spec));
  MOE_RETURN_IF_ERROR(CheckWeightsSupported(spec, weights));
  CudaDecodeBackend backend;
  MOE_ASSIGN_OR_RETURN(backend.device, OpenDevice(device));
  MOE_ASSIGN_OR_RETURN(backend.compute, CudaDecode::Create(*backend.device, spec, weights, options));
  return backend;
}

absl::StatusOr<CudaBatchBackend> OpenCudaBatch(const device::CudaDeviceOptions& options, const weights::ModelSpec& spec,
                                               const model::ModelWeights& weights, int64_t max_rows,
                                               Int8Activations setting) {
  MOE_RETURN_IF_ERROR(CheckPrefillSupported(spec));
  MOE_RETURN_IF_ERROR(CheckWeightsSupported(spec, weights));
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<device::Device> device, OpenDevice(options));
  return CudaBatchBackend{std::move(device), CudaBatch::Bytes(spec, weights, max_rows, setting)};
}

absl::StatusOr<std::unique_ptr<BatchCompute>> NewCudaBatch(device::Device& device, const weights::ModelSpec& spec,
                                                           const model::ModelWeights& weights,
                                                           const model::ModelWeights& on_device, int64_t max_rows,
                                                           Int8Activations setting) {
  return CudaBatch::Create(device, spec, weights, on_device, max_rows, setting);
}

}  // namespace moestro::engine
