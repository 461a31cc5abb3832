#include "services/prefill/stream/cuda/backend.h"

#include <utility>

#include "common/base/status.h"
#include "common/kernels/cuda/elementwise.h"
#include "services/prefill/stream/cuda/cuda_compute.h"

namespace moestro {
namespace {

// A build may lack kernels for this very GPU: the first launch tells.
absl::Status CheckLaunch(device::Device& device) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device.NewStream("check"));
  MOE_ASSIGN_OR_RETURN(const device::Memory memory, device.Allocate(2 * sizeof(float), "check"));
  const float ones[2] = {1, 1};
  float sums[2] = {};
  MOE_RETURN_IF_ERROR(stream->CopyToDevice(memory.data(), reinterpret_cast<const uint8_t*>(ones), sizeof ones));
  auto* const numbers = reinterpret_cast<float*>(memory.data());
  MOE_RETURN_IF_ERROR(stream->Launch({.name = "check", .cost = {}, .run = [numbers](void* native) {
                                        return LaunchStatus(cuda::LaunchAdd(numbers, 1, numbers + 1,
                                                                            static_cast<cuda::Stream>(native)));
                                      }}));
  MOE_RETURN_IF_ERROR(stream->CopyToHost(reinterpret_cast<uint8_t*>(sums), memory.data(), sizeof sums));
  MOE_RETURN_IF_ERROR(stream->Synchronize());
  if (sums[1] != 2) return absl::InternalError("the GPU does not add 1 and 1");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudaBackend> OpenCudaBackend(const device::CudaDeviceOptions& options, const ModelSpec& spec,
                                            const ModelWeights& weights) {
  MOE_RETURN_IF_ERROR(CudaCompute::CheckSupported(spec));
  CudaBackend backend;
  MOE_ASSIGN_OR_RETURN(backend.device, device::OpenCudaDevice(options));
  MOE_RETURN_IF_ERROR(CheckLaunch(*backend.device));
  backend.compute = std::make_unique<CudaCompute>(*backend.device, spec, weights);
  return backend;
}

}  // namespace moestro
