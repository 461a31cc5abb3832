#include "common/engine/cuda/backend.h"

namespace moestro::engine {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError("this build has no CUDA; build with the preset cuda (needs nvcc)");
}

}  // namespace

absl::StatusOr<bool> CudaTakesFp8Inputs(int) { return NoCuda(); }

absl::StatusOr<CudaPrefillBackend> OpenCudaPrefill(const device::CudaDeviceOptions&, const weights::ModelSpec&,
                                                   const model::ModelWeights&, Int8Activations, bool) {
  return NoCuda();
}

absl::StatusOr<std::unique_ptr<RankKernels>> NewCudaRankKernels(device::Device&, const weights::ModelSpec&,
                                                                const model::ModelWeights&, Int8Activations, bool) {
  return NoCuda();
}

absl::StatusOr<CudaDecodeBackend> OpenCudaDecode(const device::CudaDeviceOptions&, const weights::ModelSpec&,
                                                 const model::ModelWeights&, const CudaDecodeOptions&) {
  return NoCuda();
}

absl::StatusOr<CudaBatchBackend> OpenCudaBatch(const device::CudaDeviceOptions&, const weights::ModelSpec&,
                                               const model::ModelWeights&, int64_t, Int8Activations) {
  return NoCuda();
}

absl::StatusOr<std::unique_ptr<BatchCompute>> NewCudaBatch(device::Device&, const weights::ModelSpec&,
                                                           const model::ModelWeights&, const model::ModelWeights&,
                                                           int64_t, Int8Activations) {
  return NoCuda();
}

}  // namespace moestro::engine
