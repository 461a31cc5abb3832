#include "tests/cuda/gpu/ceilings.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/cuda/device.h"

namespace moestro::cuda {
namespace {

constexpr int kRuns = 7;
constexpr double kEnough = 0.005;  // seconds per run: events resolve half a microsecond
constexpr int kMaxCalls = 1000;
bool only_once = false;

double SecondsOfCalls(const std::function<LaunchResult()>& launch, int calls) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin, DeviceStream());
  for (int i = 0; i < calls; ++i) {
    if (const LaunchResult result = launch(); !result.ok()) {
      std::fprintf(stderr, "launch: %s\n", cudaGetErrorString(static_cast<cudaError_t>(result.error)));
      std::exit(1);
    }
  }
  cudaEventRecord(end, DeviceStream());
  if (const cudaError_t error = cudaEventSynchronize(end); error != cudaSuccess) {
    std::fprintf(stderr, "kernel: %s\n", cudaGetErrorString(error));
    std::exit(1);
  }
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return milliseconds / 1000.0;
}

}  // namespace

void OnlyOnce() { only_once = true; }

double SecondsOf(const std::function<LaunchResult()>& launch) {
  if (only_once) return SecondsOfCalls(launch, 1);
  SecondsOfCalls(launch, 1);  // loads the kernel, which takes milliseconds
  const double once = SecondsOfCalls(launch, 2) / 2;
  const int calls = std::clamp(static_cast<int>(kEnough / std::max(once, 1e-7)), 1, kMaxCalls);
  std::vector<double> seconds;
  for (int run = 0; run < kRuns; ++run) seconds.push_back(SecondsOfCalls(launch, calls) / calls);
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return seconds[kRuns / 2];
}

double CopyBandwidth() {
  constexpr int64_t kBytes = int64_t{1} << 30;  // far beyond any cache
  const DeviceArray<uint8_t> from(kBytes), to(kBytes);
  const double seconds = SecondsOf([&] {
    return LaunchResult{
        static_cast<int>(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, DeviceStream()))};
  });
  return 2 * static_cast<double>(kBytes) / seconds;
}

double PinnedBandwidth(Direction direction) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  void* host = nullptr;
  if (const cudaError_t error = cudaMallocHost(&host, kBytes); error != cudaSuccess) {
    std::fprintf(stderr, "pinned memory: %s\n", cudaGetErrorString(error));
    std::exit(1);
  }
  const DeviceArray<uint8_t> device(kBytes);
  const double seconds = SecondsOf([&] {
    return LaunchResult{
        static_cast<int>(direction == Direction::kFromHost
                             ? cudaMemcpyAsync(device.get(), host, kBytes, cudaMemcpyHostToDevice, DeviceStream())
                             : cudaMemcpyAsync(host, device.get(), kBytes, cudaMemcpyDeviceToHost, DeviceStream()))};
  });
  cudaFreeHost(host);
  return static_cast<double>(kBytes) / seconds;
}

void WarmUp() {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) MmaRate();
}

bool HasNativeFp8Mma() {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  return (major == 8 && minor == 9) || major >= 12;
}

double MmaRate(bool fp8) {
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  const int blocks = 4 * multiprocessors;
  constexpr int kRounds = 4096;
  const DeviceArray<float> out(int64_t{blocks} * 256);
  const double seconds = SecondsOf([&] { return LaunchMmaProbe(fp8, blocks, kRounds, out.get()); });
  return (fp8 ? 2 : 1) * kProbeFlopsPerBlockAndRound * blocks * kRounds / seconds;
}

}  // namespace moestro::cuda
