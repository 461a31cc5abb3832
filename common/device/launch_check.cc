#include "common/device/launch_check.h"

#include "common/base/status.h"

namespace moestro::device {

absl::Status CheckLaunch(Device& device,
                         absl::FunctionRef<absl::Status(const float* x, float* sum, void* native)> launch_add) {
  const float ones[2] = {1, 1};
  float sums[2] = {};
  MOE_ASSIGN_OR_RETURN(const Memory memory, device.Allocate(sizeof ones, "check"));
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.NewStream("check"));
  MOE_RETURN_IF_ERROR(stream->CopyToDevice(memory.data(), reinterpret_cast<const uint8_t*>(ones), sizeof ones));
  auto* const numbers = reinterpret_cast<float*>(memory.data());
  MOE_RETURN_IF_ERROR(stream->Launch(
      {.name = "check", .cost = {}, .run = [&](void* native) { return launch_add(numbers, numbers + 1, native); }}));
  MOE_RETURN_IF_ERROR(stream->CopyToHost(reinterpret_cast<uint8_t*>(sums), memory.data(), sizeof sums));
  MOE_RETURN_IF_ERROR(stream->Synchronize());
  return sums[1] == 2 ? absl::OkStatus() : absl::InternalError("the device does not add 1 and 1");
}

}  // namespace moestro::device
