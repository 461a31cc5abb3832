// Whether there is CUDA: the one place of decode that knows. backend.cc is linked where there is, no_backend.cc where
// there is not.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/device/cuda/cuda_device.h"
#include "common/model/binding.h"
#include "services/decode/overlap/compute.h"
#include "services/decode/overlap/hot_compute.h"

namespace moestro {

struct CudaDecodeOptions {
  device::CudaDeviceOptions device;
  int64_t max_rows = 0;       // of a step
  int64_t max_sequences = 0;  // of a step
  int64_t kv_pages = 0;       // of the KV pool, all of which are kept on the device
  bool hot_experts = false;   // whether the device computes routed experts that it holds
};

struct CudaDecodeBackend {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<DecodeCompute> compute;  // on the device
  std::unique_ptr<HotCompute> hot;         // null without hot_experts
};

// Copies the dense weights to the device. Spec and weights outlive it. Errors of OpenCudaDevice, CheckLaunch,
// CudaDecode and CudaHotCompute; UNIMPLEMENTED in builds without CUDA.
absl::StatusOr<CudaDecodeBackend> OpenCudaDecode(const CudaDecodeOptions& options, const ModelSpec& spec,
                                                 const ModelWeights& weights);

}  // namespace moestro
