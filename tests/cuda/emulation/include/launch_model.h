// Launch() of common/kernels/cuda/launch.cuh on the machine of tests/cuda/emulation.
#pragma once

#include <cstdint>
#include <tuple>

#include "common/kernels/cuda/stream.h"
#include "tests/cuda/emulation/machine.h"
#include "tests/cuda/emulation/runtime.h"

namespace moestro::cuda {

using emulation::kLaunchFailure;

template <typename... Params>
struct KernelCall {
  void (*kernel)(Params...);
  std::tuple<Params...> arguments;

  __attribute__((no_sanitize("thread"))) static void Run(const void* context) {
    const auto* call = static_cast<const KernelCall*>(context);
    Apply(*call, std::index_sequence_for<Params...>());
  }
  template <size_t... kIndex>
  __attribute__((no_sanitize("thread"))) static void Apply(const KernelCall& call, std::index_sequence<kIndex...>) {
    call.kernel(std::get<kIndex>(call.arguments)...);
  }
};

template <typename... Params, typename... Args>
LaunchResult Launch(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block, int64_t shared_bytes,
                    Stream stream, const Args&... arguments) {
  const KernelCall<Params...> call{kernel, {arguments...}};
  const emulation::LaunchShape shape{{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes};
  const auto run = [name, shape, call] { return emulation::RunGrid(name, shape, &KernelCall<Params...>::Run, &call); };
  if (stream != nullptr) {
    const bool early = StartsEarly(reinterpret_cast<const void*>(kernel), stream);
    return {emulation::EnqueueLaunch(stream, early, run)};
  }
  return {run() ? 0 : kLaunchFailure};
}

}  // namespace moestro::cuda
