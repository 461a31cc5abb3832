#include <cuda_runtime.h>

#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/modules.h"

namespace moestro::cuda {

LaunchResult LoadModules() {
  for (const Module* module = Module::first; module != nullptr; module = module->next) {
    cudaFuncAttributes code = {};
    const cudaError_t error = cudaFuncGetAttributes(&code, module->kernel);  // of loaded code
    if (error != cudaSuccess) return {static_cast<int>(error)};
  }
  return {};
}

}  // namespace moestro::cuda
