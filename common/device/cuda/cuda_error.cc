#include "common/device/cuda/cuda_error.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace moestro::device {
namespace {

struct Meaning {
  absl::StatusCode code;
  const char* remedy;
};

Meaning MeaningOf(cudaError_t error) {
  using Code = absl::StatusCode;
  switch (error) {
    // Also returned while the driver is being loaded, at boot or by an update. A role that needs the GPU retries later.
    case cudaErrorNoDevice:
      return {Code::kUnavailable, "no GPU is visible to this process: see nvidia-smi and CUDA_VISIBLE_DEVICES"};
    case cudaErrorInsufficientDriver:
      return {Code::kUnavailable, "the NVIDIA driver is missing, or older than this build's CUDA: see nvidia-smi"};
    case cudaErrorInvalidDevice:
      return {Code::kNotFound, "no GPU has this number: see nvidia-smi -L"};
    case cudaErrorMemoryAllocation:
      return {Code::kResourceExhausted,
              "another process uses the GPU's memory (nvidia-smi), or too much is requested (--device-memory)"};
    case cudaErrorNoKernelImageForDevice:
      return {Code::kUnimplemented, "the build's CMAKE_CUDA_ARCHITECTURES lacks this GPU"};
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
    case cudaErrorECCUncorrectable:
      return {Code::kInternal, "this process has lost the GPU until it is restarted"};
    default:
      return {Code::kInternal, ""};
  }
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const Meaning meaning = MeaningOf(error);
  std::string text =
      absl::StrCat(std::string(what), ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
  if (*meaning.remedy != '\0') absl::StrAppend(&text, "; ", meaning.remedy);
  return absl::Status(meaning.code, text);
}

}  // namespace moestro::device
