// What callers of the CUDA kernels need to know of CUDA: nothing but a handle and a result. No header of the toolkit.
#pragma once

struct CUstream_st;

namespace moestro::cuda {

// A cudaStream_t; null is the default stream. Kernels of one stream run in order, and launching returns at once.
using Stream = CUstream_st*;

// Of a launch, not of the kernel's run, whose errors the stream reports later. 0 is success, everything else the value
// of a cudaError_t; kInvalidArgument also says that a shape or alignment is none that the kernel's header allows.
struct [[nodiscard]] LaunchResult {
  int error = 0;
  bool ok() const { return error == 0; }
};
inline constexpr int kInvalidArgument = 1;  // cudaErrorInvalidValue

}  // namespace moestro::cuda
