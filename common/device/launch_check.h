// Checks that a device runs this build's kernels.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device/device.h"

namespace moestro::device {

// A build may lack kernels for this GPU, which only the first launch reveals. `launch_add` launches, on a Kernel's
// `native`, a kernel that adds the number *x to *sum. Returns its error, or the stream's; INTERNAL if the sum is wrong.
absl::Status CheckLaunch(Device& device,
                         absl::FunctionRef<absl::Status(const float* x, float* sum, void* native)> launch_add);

}  // namespace moestro::device
