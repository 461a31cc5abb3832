// The types of CUDA that callers of the kernels need: a handle and a result. Includes no header of the toolkit.
#pragma once

struct CUstream_st;

namespace moestro::cuda {

// A cudaStream_t; null is the default stream. Kernels of one stream run in order, and launching returns at once.
using Stream = CUstream_st*;

// The result of a launch; the stream reports errors of the kernel's run later. 0 is success, all other values are those
// of cudaError_t. kInvalidArgument also means a shape or alignment that the kernel's header does not allow.
struct [[nodiscard]] LaunchResult {
  int error = 0;
  bool ok() const { return error == 0; }
};
inline constexpr int kInvalidArgument = 1;  // cudaErrorInvalidValue

}  // namespace moestro::cuda
