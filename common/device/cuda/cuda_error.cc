#include "common/device/cuda/cuda_error.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace moestro::device {
namespace {

using Code = absl::StatusCode;

struct Meaning {
  cudaError_t error;
  absl::StatusCode code;
  const char* remedy;
};

// After these the driver refuses this process everything.
constexpr cudaError_t kSticky[] = {cudaErrorIllegalAddress,      cudaErrorLaunchFailure,
                                   cudaErrorMisalignedAddress,   cudaErrorInvalidAddressSpace,
                                   cudaErrorInvalidPc,           cudaErrorIllegalInstruction,
                                   cudaErrorHardwareStackError,  cudaErrorLaunchTimeout,
                                   cudaErrorECCUncorrectable,    cudaErrorAssert,
                                   cudaErrorNvlinkUncorrectable, cudaErrorContained};

// Unavailable is also what is said while the driver is being loaded, at boot or by an update: a role that needs the GPU
// tries again later.
constexpr Meaning kMeanings[] = {
    {cudaErrorNoDevice, Code::kUnavailable,
     "no GPU is visible to this process: see nvidia-smi and CUDA_VISIBLE_DEVICES"},
    {cudaErrorInsufficientDriver, Code::kUnavailable,
     "the NVIDIA driver is missing, or older than this build's CUDA: see nvidia-smi"},
    {cudaErrorSystemDriverMismatch, Code::kUnavailable,
     "the driver's library and its kernel module are of different versions, as after an update: restart the machine, "
     "or in a container mount the host's library"},
    {cudaErrorSystemNotReady, Code::kUnavailable,
     "GPUs behind NVSwitch need the fabric manager: see systemctl status nvidia-fabricmanager"},
    {cudaErrorDevicesUnavailable, Code::kUnavailable,
     "the GPU is in use and takes one process only: nvidia-smi -c DEFAULT lets prefill and decode share it"},
    {cudaErrorInvalidDevice, Code::kNotFound, "no GPU has this number: see nvidia-smi -L"},
    {cudaErrorMemoryAllocation, Code::kResourceExhausted,
     "another process uses the GPU's memory (nvidia-smi), or too much is requested (--device-memory)"},
    {cudaErrorNoKernelImageForDevice, Code::kUnimplemented, "the build's CMAKE_CUDA_ARCHITECTURES lacks this GPU"},
    {cudaErrorUnsupportedPtxVersion, Code::kUnimplemented,
     "the driver is too old to compile this build's kernels for this GPU: update it, or build with a "
     "CMAKE_CUDA_ARCHITECTURES that has this GPU"},
    {cudaErrorIllegalInstruction, Code::kInternal,
     "the driver may get an instruction wrong: MOESTRO_WGMMA=off avoids some"},
    {cudaErrorLaunchTimeout, Code::kInternal,
     "the driver ends long kernels on a GPU that has a display: use another GPU, or no display"},
    {cudaErrorECCUncorrectable, Code::kInternal, "the GPU's memory is faulty: see nvidia-smi -q -d ECC"},
    {cudaErrorNvlinkUncorrectable, Code::kInternal, "a link between GPUs is faulty: see nvidia-smi nvlink -e"},
};

}  // namespace

absl::Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  std::string text =
      absl::StrCat(std::string(what), ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
  if (std::ranges::count(kSticky, error) > 0) {
    absl::StrAppend(&text, "; the GPU is lost to this process until it is restarted");
  }
  const auto* const meaning = std::ranges::find(kMeanings, error, &Meaning::error);
  if (meaning == std::end(kMeanings)) return absl::InternalError(text);
  return absl::Status(meaning->code, absl::StrCat(text, "; ", meaning->remedy));
}

}  // namespace moestro::device
