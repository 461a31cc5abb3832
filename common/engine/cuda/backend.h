// Whether there is CUDA: the one place that knows. backend.cc is linked where there is, no_backend.cc where there is
// not: there all of these are UNIMPLEMENTED. Spec and weights outlive what is opened. Of the setting of 8-bit inputs a
// GPU follows what it says of I8 weights; formats of blocks have BF16 inputs.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/device/cuda/cuda_device.h"
#include "common/engine/batch_compute.h"
#include "common/engine/decode_compute.h"
#include "common/engine/prefill_compute.h"
#include "common/engine/rank_kernels.h"
#include "common/kernels/cpu/input_coding.h"
#include "common/model/binding.h"

namespace moestro::engine {

struct CudaPrefillBackend {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<PrefillCompute> compute;  // on the device
};

// Whether the GPU can take fp8_inputs. Errors of OpenCudaDevice.
absl::StatusOr<bool> CudaTakesFp8Inputs(int ordinal);

// fp8_inputs: inputs of FP8 weights are rounded to FP8, which the GPU can take. Errors of OpenCudaDevice,
// CheckPrefillSupported and CheckWeightsSupported, and what a first kernel fails with.
absl::StatusOr<CudaPrefillBackend> OpenCudaPrefill(const device::CudaDeviceOptions& options,
                                                   const weights::ModelSpec& spec, const model::ModelWeights& weights,
                                                   Int8Activations setting, bool fp8_inputs);

// A rank on a device of OpenCudaPrefill's, which outlives the result. Errors of CheckRanksSupported.
absl::StatusOr<std::unique_ptr<RankKernels>> NewCudaRankKernels(device::Device& device, const weights::ModelSpec& spec,
                                                                const model::ModelWeights& weights,
                                                                Int8Activations setting, bool fp8_inputs);

struct CudaDecodeOptions {
  int64_t max_rows = 0;        // of a step
  int64_t max_sequences = 0;   // of a step
  int64_t kv_pages = 0;        // of the KV pool
  int64_t device_pages = 0;    // of these the most on the device at a time; 0: as many as fit
  int64_t reserved_bytes = 0;  // of device memory, which KV pages leave free
  int64_t hot_rows = 0;        // of a step whose routed experts the device computes, as far as it holds them; 0: none
  Int8Activations int8_activations = Int8Activations::kPublished;
};

struct CudaDecodeBackend {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<DecodeCompute> compute;  // on the device
};

// Copies the dense weights to the device. Errors of OpenCudaDevice, CheckDecodeSupported, CheckWeightsSupported and
// CudaDecode, and what a first kernel fails with.
absl::StatusOr<CudaDecodeBackend> OpenCudaDecode(const device::CudaDeviceOptions& device,
                                                 const weights::ModelSpec& spec, const model::ModelWeights& weights,
                                                 const CudaDecodeOptions& options);

struct CudaBatchBackend {
  std::unique_ptr<device::Device> device;
  int64_t compute_bytes = 0;  // of device memory, that NewCudaBatch takes
};

// Errors of OpenCudaDevice, CheckPrefillSupported and CheckWeightsSupported, and what a first kernel fails with.
absl::StatusOr<CudaBatchBackend> OpenCudaBatch(const device::CudaDeviceOptions& options, const weights::ModelSpec& spec,
                                               const model::ModelWeights& weights, int64_t max_rows,
                                               Int8Activations setting);
// What computes on it; CudaBatch::Create says of what.
absl::StatusOr<std::unique_ptr<BatchCompute>> NewCudaBatch(device::Device& device, const weights::ModelSpec& spec,
                                                           const model::ModelWeights& weights,
                                                           const model::ModelWeights& on_device, int64_t max_rows,
                                                           Int8Activations setting);

}  // namespace moestro::engine
