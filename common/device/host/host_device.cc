#include "common/device/host/host_device.h"

#include <new>

#include "common/base/status.h"
#include "common/device/host/copy_link.h"
#include "common/device/host/host_stream.h"

namespace moestro::device {
namespace {

constexpr std::align_val_t kAlignment{4096};

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options)
      : clock_(*options.clock),
        budget_(options.memory_bytes),
        to_device_(clock_, options.copy_bytes_per_second),
        to_host_(clock_, options.copy_bytes_per_second) {}

  std::string_view name() const override { return "host"; }
  int64_t memory_bytes() const override { return budget_.limit(); }
  int64_t memory_used() const override { return budget_.used(); }
  int64_t memory_free() const override { return budget_.free(); }

  absl::StatusOr<Memory> Allocate(int64_t bytes, const std::string& what) override {
    MOE_RETURN_IF_ERROR(budget_.Take(bytes, what));
    auto* data = static_cast<uint8_t*>(::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow));
    if (data == nullptr) {
      budget_.Give(bytes);
      return absl::ResourceExhaustedError(what + ": the host has no memory left for it");
    }
    return Memory(data, bytes, Release([this, data, bytes] {
                    ::operator delete(data, kAlignment);
                    budget_.Give(bytes);
                  }));
  }

  absl::StatusOr<Registration> Register(const uint8_t*, int64_t, HostAccess) override { return Registration(); }

  absl::Status ReachPeer(const Device& peer) override {
    return peer.name() == name() ? absl::OkStatus() : Device::ReachPeer(peer);
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream(std::string_view) override {
    return std::make_unique<HostStream>(clock_, to_device_, to_host_);
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override { return std::make_unique<HostEvent>(); }

  double Now() const override { return clock_.Now(); }

 private:
  const Clock& clock_;
  MemoryBudget budget_;
  CopyLink to_device_;
  CopyLink to_host_;
};

}  // namespace

std::unique_ptr<Device> NewHostDevice(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace moestro::device
