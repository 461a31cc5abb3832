#include "common/device/sim/sim_device.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status.h"

namespace moestro::device {
namespace {

constexpr int64_t kAlignment = 4096;
constexpr double kTile = 128;  // side of an output tile: the block of an FP8 scale

class SimEvent final : public Event {
 public:
  explicit SimEvent(World& world) : world_(world) {}

  absl::Status Wait() override {
    world_.AdvanceTo(Seconds());
    return absl::OkStatus();
  }
  double Seconds() const override {
    const double seconds = seconds_.load();
    MOE_CHECK(seconds >= 0);  // recorded
    return seconds;
  }
  void Set(double seconds) { seconds_.store(seconds); }

 private:
  World& world_;
  std::atomic<double> seconds_{-1};
};

// What a device takes of its world.
struct Resources {
  World& world;
  size_t processors = 0;
  size_t to_device = 0;
  size_t to_host = 0;
  std::optional<World::Share> host_memory;
};

class SimStream final : public Stream {
 public:
  SimStream(const HardwareSpec& hardware, const Resources& resources) : hardware_(hardware), resources_(resources) {}

  absl::Status CopyToDevice(uint8_t*, const uint8_t*, int64_t bytes) override {
    if (!resources_.host_memory) return Copy(resources_.to_device, bytes);
    const World::Amount read[] = {{*resources_.host_memory, static_cast<double>(bytes)}};
    return Copy(resources_.to_device, bytes, read);
  }
  absl::Status CopyToHost(uint8_t*, const uint8_t*, int64_t bytes) override { return Copy(resources_.to_host, bytes); }
  absl::Status Launch(Kernel kernel) override {
    const World::Turn turn[] = {{resources_.processors, KernelSeconds(hardware_, kernel.cost)}};
    end_ = resources_.world.Take(Begin(), turn);
    return absl::OkStatus();
  }
  absl::Status Record(Event& event) override {
    static_cast<SimEvent&>(event).Set(Begin());
    return absl::OkStatus();
  }
  absl::Status WaitFor(Event& event) override {
    end_ = std::max(end_, static_cast<SimEvent&>(event).Seconds());
    return absl::OkStatus();
  }
  absl::Status Synchronize() override {
    resources_.world.AdvanceTo(end_);
    return absl::OkStatus();
  }

 private:
  double Begin() const { return std::max(end_, resources_.world.Now()); }
  absl::Status Copy(size_t link, int64_t bytes, std::span<const World::Amount> read = {}) {
    const double begin = Begin() + hardware_.copy_seconds;
    const double seconds = static_cast<double>(bytes) / hardware_.copy_bytes_per_second;
    const World::Turn turn[] = {{link, seconds}};
    end_ = seconds < hardware_.copy_seconds ? begin + seconds : resources_.world.Take(begin, turn, read);
    return absl::OkStatus();
  }

  const HardwareSpec& hardware_;
  const Resources& resources_;
  double end_ = 0;  // end time of the work so far
};

class SimDevice : public Device {
 public:
  SimDevice(const HardwareSpec& hardware, const SimView& view)
      : hardware_(hardware),
        resources_{view.world, view.world.Turns(view.name + " processors"), view.world.Turns(view.name + " to device"),
                   view.world.Turns(view.name + " to host"), view.host_memory},
        name_("sim: " + hardware.name),
        budget_(static_cast<int64_t>(hardware.gpu_memory_bytes)) {}

  std::string_view name() const override { return name_; }
  int64_t memory_bytes() const override { return budget_.limit(); }
  int64_t memory_used() const override { return budget_.used(); }
  int64_t memory_free() const override { return budget_.free(); }

  absl::StatusOr<Memory> Allocate(int64_t bytes, const std::string& what) override {
    MOE_RETURN_IF_ERROR(budget_.Take(bytes, what));
    // Addresses that nobody reads, each used once.
    const int64_t address = next_address_.fetch_add(RoundUp(bytes, kAlignment) + kAlignment);
    return Memory(reinterpret_cast<uint8_t*>(address), bytes, Release([this, bytes] { budget_.Give(bytes); }));
  }
  absl::StatusOr<Registration> Register(const uint8_t*, int64_t, HostAccess) override { return Registration(); }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream(std::string_view) override {
    return std::make_unique<SimStream>(hardware_, resources_);
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override { return std::make_unique<SimEvent>(resources_.world); }

  double Now() const override { return resources_.world.Now(); }
  void AdvanceTo(double seconds) override { resources_.world.AdvanceTo(seconds); }

 private:
  const HardwareSpec hardware_;
  const Resources resources_;
  const std::string name_;
  MemoryBudget budget_;
  std::atomic<int64_t> next_address_{kAlignment};
};

// A device alone in its world.
struct OwnWorld {
  World world;
};
class LoneSimDevice final : private OwnWorld, public SimDevice {
 public:
  explicit LoneSimDevice(const HardwareSpec& hardware) : SimDevice(hardware, {world, hardware.name}) {}
};

}  // namespace

double KernelSeconds(const HardwareSpec& hardware, const KernelCost& cost) {
  const double half_wave = hardware.gpu_processors / 2 * (2 * kTile * kTile);  // operations per unit of inner dimension
  const double fp8_flops = cost.fp8_flops + half_wave * cost.fp8_depth;
  const double bf16_flops = cost.bf16_flops + half_wave * cost.bf16_depth;
  const double products = fp8_flops / (hardware.fp8_flops_per_second * hardware.fp8_linear_fraction) +
                          bf16_flops / (hardware.bf16_flops_per_second * hardware.bf16_linear_fraction) +
                          cost.attention_flops / (hardware.bf16_flops_per_second * hardware.attention_fraction);
  const double bytes_per_second = hardware.gpu_memory_bytes_per_second * hardware.memory_fraction;
  return std::max(products, cost.memory_bytes / bytes_per_second) + cost.elementwise_bytes / bytes_per_second +
         static_cast<double>(cost.kernels) * hardware.launch_seconds +
         (cost.host_bytes > 0 ? cost.host_bytes / hardware.copy_bytes_per_second : 0) +
         static_cast<double>(cost.bus_trips) * kBusTripSeconds;
}

std::unique_ptr<Device> NewSimDevice(const HardwareSpec& hardware, const SimView& view) {
  return std::make_unique<SimDevice>(hardware, view);
}

std::unique_ptr<Device> NewSimDevice(const HardwareSpec& hardware) { return std::make_unique<LoneSimDevice>(hardware); }

}  // namespace moestro::device
