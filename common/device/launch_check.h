// Whether a device runs the kernels at hand.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device/device.h"

namespace moestro::device {

// A build may lack kernels for this very GPU: the first launch tells. `launch_add` launches, on a Kernel's `native`, a
// kernel that adds the number *x to *sum. Its error, or the stream's; INTERNAL if the sum is wrong.
absl::Status CheckLaunch(Device& device,
                         absl::FunctionRef<absl::Status(const float* x, float* sum, void* native)> launch_add);

}  // namespace moestro::device
