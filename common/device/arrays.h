// Device memory for a type that lists its arrays: visit(take) calls take(pointer&, count) for each of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "common/device/device.h"

namespace moestro::device {

// Bytes of all arrays.
template <typename Visit>
int64_t ArrayBytes(const Visit& visit) {
  int64_t bytes = 0;
  visit([&]<typename T>(T*&, int64_t count) { bytes += count * static_cast<int64_t>(sizeof(T)); });
  return bytes;
}

// Allocates device memory for all arrays and points the non-empty arrays' pointers into it. Returns the memory, or the
// first error of Device::Allocate, for which `what` names the memory.
template <typename Visit>
absl::StatusOr<std::vector<Memory>> AllocateArrays(Device& device, const std::string& what, const Visit& visit) {
  std::vector<Memory> arrays;
  absl::Status status;
  visit([&]<typename T>(T*& array, int64_t count) {
    if (!status.ok() || count == 0) return;
    auto memory = device.Allocate(count * static_cast<int64_t>(sizeof(T)), what);
    status = memory.status();
    if (!status.ok()) return;
    array = reinterpret_cast<T*>(memory->data());
    arrays.push_back(*std::move(memory));
  });
  MOE_RETURN_IF_ERROR(status);
  return arrays;
}

}  // namespace moestro::device
