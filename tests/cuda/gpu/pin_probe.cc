// Measures how this machine pins shared memory, and how fast copies from it are: writes DIR/pin.json after each
// measurement, and DIR/pin.md at the end.
//   cuda_pin_probe --out DIR
//   cuda_pin_probe --gpu      prints the GPU's name, or fails with the reason why there is none
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/status.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/staging.h"
#include "common/platform/process_memory.h"
#include "tests/cuda/device.h"
#include "tests/cuda/gpu/ceilings.h"
#include "tests/cuda/gpu/shared_mapping.h"

namespace moestro {
namespace {

constexpr int64_t kBytes = int64_t{1} << 30;
constexpr int64_t kExpertBytes = 44 << 20;  // of DeepSeek-V3
constexpr int64_t kSmallBytes = 28 << 10;   // a row's sums
constexpr int kRepeats = 3;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double SecondsToRun(const std::function<void()>& run) {
  const double begin = Now();
  run();
  return Now() - begin;
}

int64_t FreeDeviceBytes() {
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return static_cast<int64_t>(free);
}

// Random numbers: the contents may affect the speed.
void Fill(const SharedMapping& memory) {
  std::vector<uint64_t> pattern((1 << 20) / 8 + 8);
  std::mt19937_64 random(1);
  for (uint64_t& word : pattern) word = random();
  const auto whole = static_cast<int64_t>(pattern.size() * sizeof(uint64_t));
  for (int64_t at = 0; at < memory.bytes(); at += whole) {
    std::memcpy(memory.data() + at, pattern.data(), static_cast<size_t>(std::min(whole, memory.bytes() - at)));
  }
}

// One way to register the memory: the driver's answer, the cost, and the speed of copies afterwards.
nlohmann::json Register(const SharedMapping& memory, const char* way, bool writable, unsigned flags,
                        const std::function<double()>& copy_rate) {
  const auto size = static_cast<size_t>(kBytes);
  mprotect(memory.data(), size, writable ? PROT_READ | PROT_WRITE : PROT_READ);
  const int64_t free = FreeDeviceBytes();
  cudaError_t error = cudaSuccess;
  const double seconds =
      SecondsToRun([&] { error = cudaHostRegister(memory.data(), size, flags | cudaHostRegisterPortable); });
  nlohmann::json row{{"way", way}, {"result", cudaGetErrorName(error)}};
  cudaGetLastError();
  if (error == cudaSuccess) {
    row["seconds_per_gib"] = seconds;
    row["device_bytes_per_gib"] = free - FreeDeviceBytes();
    mprotect(memory.data(), size, PROT_READ);  // the registration stays
    row["bytes_per_second"] = copy_rate();
    row["unregister_seconds"] = SecondsToRun([&] { error = cudaHostUnregister(memory.data()); });
    if (error != cudaSuccess) row["unregister"] = cudaGetErrorName(error);
  }
  mprotect(memory.data(), size, PROT_READ);
  return row;
}

// The longest of many launches' times on the host, in seconds, while `busy` runs on another thread.
double LongestLaunch(cudaStream_t stream, float* numbers, const std::function<void()>& busy) {
  std::atomic<bool> done = false;
  std::thread other([&] {
    busy();
    done = true;
  });
  double longest = 0;
  while (!done) {
    longest = std::max(longest, SecondsToRun([&] { cudaMemsetAsync(numbers, 0, 4096, stream); }));
  }
  other.join();
  cudaStreamSynchronize(stream);
  return longest;
}

// Median time of a small copy to the device, to its arrival, with or without another stream that copies experts.
double SmallCopySeconds(const uint8_t* host, uint8_t* device, bool under_experts) {
  cudaStream_t small = nullptr, large = nullptr;
  cudaStreamCreateWithFlags(&small, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&large, cudaStreamNonBlocking);
  std::vector<double> seconds;
  for (int i = 0; i < 21; ++i) {
    for (int j = 0; under_experts && j < 4; ++j) {
      cudaMemcpyAsync(device + kExpertBytes, host + j * kExpertBytes, kExpertBytes, cudaMemcpyHostToDevice, large);
    }
    seconds.push_back(SecondsToRun([&] {
      cudaMemcpyAsync(device, host, kSmallBytes, cudaMemcpyHostToDevice, small);
      cudaStreamSynchronize(small);
    }));
    cudaStreamSynchronize(large);
  }
  cudaStreamDestroy(small);
  cudaStreamDestroy(large);
  std::ranges::nth_element(seconds, seconds.begin() + 10);
  return seconds[10];
}

// Registers slices of 1 GiB, which the driver fills with pages, until it refuses one, or 16 GiB or three quarters of
// the available memory are registered, or the time is up.
nlohmann::json PinAsMuchAsPossible() {
  constexpr double kSeconds = 12;
  constexpr int64_t kSlice = int64_t{1} << 30;
  const absl::StatusOr<AvailableMemory> available = ReadAvailableMemory();
  constexpr int64_t kMostSlices = 16;  // who else is on this machine is not known
  const int64_t slices = std::min(available.ok() ? available->bytes / 4 * 3 / kSlice : 8, kMostSlices);
  const SharedMapping memory(std::max<int64_t>(slices, 1) * kSlice);
  const int64_t free = FreeDeviceBytes();
  const double begin = Now();
  int64_t pinned = 0;
  std::string end = slices == kMostSlices ? "16 GiB" : "three quarters of the available memory";
  for (; pinned < slices; ++pinned) {
    if (Now() - begin > kSeconds) {
      end = "the time was up";
      break;
    }
    const cudaError_t error = cudaHostRegister(memory.data() + pinned * kSlice, kSlice, cudaHostRegisterPortable);
    if (error == cudaSuccess) continue;
    end = cudaGetErrorName(error);
    cudaGetLastError();
    break;
  }
  nlohmann::json report{{"pinned_bytes", pinned * kSlice},
                        {"seconds", Now() - begin},
                        {"device_bytes", free - FreeDeviceBytes()},
                        {"end", end}};
  for (int64_t slice = 0; slice < pinned; ++slice) cudaHostUnregister(memory.data() + slice * kSlice);
  return report;
}

// The measurements, in the report as they are made: done() follows each.
absl::Status Measure(nlohmann::json& report, const std::function<void()>& done) {
  const SharedMapping memory(kBytes);
  Fill(memory);
  const cuda::DeviceArray<uint8_t> to(kBytes);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const auto driver_rate = [&] {
    double seconds = 1e9;
    for (int i = 0; i < kRepeats; ++i) {
      seconds = std::min(seconds, SecondsToRun([&] {
                           cudaMemcpyAsync(to.get(), memory.data(), kBytes, cudaMemcpyHostToDevice, stream);
                           cudaStreamSynchronize(stream);
                         }));
    }
    return static_cast<double>(kBytes) / seconds;
  };
  int reads_only = 0;
  cudaDeviceGetAttribute(&reads_only, cudaDevAttrHostRegisterReadOnlySupported, 0);
  report = {{"gpu", cuda::DeviceName()},
            {"registers_read_only_mappings", reads_only != 0},
            {"pinned_heap_bytes_per_second", cuda::PinnedBandwidth()},
            {"to_pinned_heap_bytes_per_second", cuda::PinnedBandwidth(cuda::Direction::kToHost)}};
  done();
  report["most"] = PinAsMuchAsPossible();
  done();
  memory.Protect();
  report["pageable_bytes_per_second"] = driver_rate();
  done();
  const struct {
    const char* way;
    bool writable;
    unsigned flags;
  } kWays[] = {{"read-only mapping, read-only flag", false, cudaHostRegisterReadOnly},
               {"read-only mapping, no flag", false, cudaHostRegisterDefault},
               {"writable mapping, read-only afterwards", true, cudaHostRegisterDefault}};
  for (const auto& [way, writable, flags] : kWays) {
    report["ways"].push_back(Register(memory, way, writable, flags, driver_rate));
    done();
  }

  // Registers slice by slice, as the roles do, and measures what it delays.
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<device::Device> device, device::OpenCudaDevice({}));
  MOE_ASSIGN_OR_RETURN(const auto staged, device::StagedStream::Create(*device, "staged"));
  double seconds = 1e9;
  for (int i = 0; i < kRepeats + 1; ++i) {  // the first run makes the buffers
    absl::Status status;
    seconds = std::min(seconds, SecondsToRun([&] {
                         status = staged->CopyToDevice(to.get(), memory.data(), kBytes);
                         if (status.ok()) status = staged->Synchronize();
                       }));
    MOE_RETURN_IF_ERROR(status);
  }
  report["staged"] = {{"bytes_per_second", static_cast<double>(kBytes) / seconds},
                      {"staged_bytes", staged->staged_bytes()},
                      {"pageable_bytes", staged->pageable_bytes()}};
  done();
  auto* const numbers = reinterpret_cast<float*>(to.get());
  report["longest_launch_seconds"] =
      LongestLaunch(stream, numbers, [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); });
  absl::StatusOr<device::Registration> registration = absl::InternalError("not tried");
  constexpr int64_t kSlice = int64_t{256} << 20;
  report["longest_launch_while_registering_seconds"] = LongestLaunch(
      stream, numbers, [&] { registration = device->Register(memory.data(), kSlice, device::HostAccess::kReads); });
  report["slice"] = registration.ok() ? "registered" : std::string(registration.status().message());
  done();
  report["small_copy_seconds"] = SmallCopySeconds(memory.data(), to.get(), false);
  report["small_copy_under_experts_seconds"] = SmallCopySeconds(memory.data(), to.get(), true);
  done();
  registration = absl::InternalError("let go");
  cudaStreamDestroy(stream);
  return absl::OkStatus();
}

void WriteMarkdown(const nlohmann::json& report, const std::string& path) {
  std::ofstream file(path);
  const auto rate = [](const nlohmann::json& value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f GB/s", value.get<double>() / 1e9);
    return std::string(text);
  };
  const auto time = [](const nlohmann::json& value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f us", value.get<double>() * 1e6);
    return std::string(text);
  };
  file << "\n## Pinning on " << report["gpu"].get<std::string>() << "\n\nRegisters read-only mappings as they are: "
       << (report["registers_read_only_mappings"].get<bool>() ? "yes" : "no") << ". Copies to the device: pinned heap "
       << rate(report["pinned_heap_bytes_per_second"]) << ", shared memory pageable "
       << rate(report["pageable_bytes_per_second"]) << ", staged " << rate(report["staged"]["bytes_per_second"])
       << "; from the device to a pinned heap " << rate(report["to_pinned_heap_bytes_per_second"])
       << ". Pinned at most " << report["most"]["pinned_bytes"].get<int64_t>() / (int64_t{1} << 30) << " GiB in "
       << report["most"]["seconds"].get<double>() << " s (" << report["most"]["end"].get<std::string>()
       << "), which took " << report["most"]["device_bytes"]
       << " bytes of the GPU.\n\n| shared memory | result | s per GiB | of the GPU, per GiB | copies "
          "|\n|---|---|---|---|---|\n";
  for (const nlohmann::json& row : report["ways"]) {
    file << "| " << row["way"].get<std::string>() << " | " << row["result"].get<std::string>() << " | ";
    if (row.contains("bytes_per_second")) {
      file << row["seconds_per_gib"].get<double>() << " | " << row["device_bytes_per_gib"] << " bytes | "
           << rate(row["bytes_per_second"]) << " |\n";
    } else {
      file << "- | - | - |\n";
    }
  }
  file << "\nLongest call of a launch " << time(report["longest_launch_seconds"]) << ", while a slice is registered "
       << time(report["longest_launch_while_registering_seconds"]) << " (" << report["slice"].get<std::string>()
       << "). A copy of 28 KiB " << time(report["small_copy_seconds"]) << ", under copies of experts "
       << time(report["small_copy_under_experts_seconds"]) << ".\n";
}

absl::Status Main(const std::string& out) {
  cuda::WarmUp();
  nlohmann::json report;
  MOE_RETURN_IF_ERROR(Measure(report, [&] { std::ofstream(out + "/pin.json") << report.dump(2) << "\n"; }));
  WriteMarkdown(report, out + "/pin.md");
  return absl::OkStatus();
}

absl::Status PrintGpu() {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<device::Device> device, device::OpenCudaDevice({}));
  std::printf("%s\n", std::string(device->name()).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  const std::string flag = argc > 1 ? argv[1] : "";
  absl::Status status;
  if (argc == 2 && flag == "--gpu") {
    status = moestro::PrintGpu();
  } else if (argc == 3 && flag == "--out") {
    status = moestro::Main(argv[2]);
  } else {
    std::fprintf(stderr, "usage: cuda_pin_probe --out DIR | --gpu\n");
    return 2;
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
