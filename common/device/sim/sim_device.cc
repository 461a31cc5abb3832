#include "common/device/sim/sim_device.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace moestro::device {
namespace {

constexpr int64_t kAlignment = 4096;
constexpr double kTile = 128;  // side of an output tile: the block of an FP8 scale

// The calling thread's time on the device that it used last: a thread uses one simulated device at a time.
struct ThreadTime {
  uint64_t device = 0;
  double seconds = 0;
};
thread_local ThreadTime thread_time;

class Time {
 public:
  double Now() const { return thread_time.device == id_ ? thread_time.seconds : 0; }
  void AdvanceTo(double seconds) const { thread_time = {id_, std::max(Now(), seconds)}; }

 private:
  static inline std::atomic<uint64_t> devices_{0};
  const uint64_t id_ = ++devices_;
};

class SimEvent final : public Event {
 public:
  explicit SimEvent(const Time& time) : time_(time) {}

  absl::Status Wait() override {
    time_.AdvanceTo(Seconds());
    return absl::OkStatus();
  }
  double Seconds() const override {
    const double seconds = seconds_.load();
    MOE_CHECK(seconds >= 0);  // recorded
    return seconds;
  }
  void Set(double seconds) { seconds_.store(seconds); }

 private:
  const Time& time_;
  std::atomic<double> seconds_{-1};
};

// A resource that does one thing at a time: a direction of the bus, or the processors. Serves requests in call order.
class Resource {
 public:
  // The end time of work that takes `seconds` and could begin at `begin`.
  double Use(double begin, double seconds) {
    MutexLock lock(mutex_);
    free_at_ = std::max(free_at_, begin) + seconds;
    return free_at_;
  }
  // The same for work that ends when another resource has given `amount`.
  double Use(double begin, const SharedUse& other, double amount) {
    MutexLock lock(mutex_);
    free_at_ = other.Use(std::max(free_at_, begin), amount);
    return free_at_;
  }

 private:
  Mutex mutex_;
  double free_at_ ABSL_GUARDED_BY(mutex_) = 0;
};

class SimStream final : public Stream {
 public:
  SimStream(const HardwareSpec& hardware, const Time& time, const SharedUse& host_memory, Resource& processors,
            Resource& to_device, Resource& to_host)
      : hardware_(hardware),
        time_(time),
        host_memory_(host_memory),
        processors_(processors),
        to_device_(to_device),
        to_host_(to_host) {}

  absl::Status CopyToDevice(uint8_t*, const uint8_t*, int64_t bytes) override {
    if (host_memory_.resource == nullptr || IsShort(bytes)) return Copy(to_device_, bytes);
    end_ = to_device_.Use(Begin() + hardware_.copy_seconds, host_memory_, static_cast<double>(bytes));
    return absl::OkStatus();
  }
  absl::Status CopyToHost(uint8_t*, const uint8_t*, int64_t bytes) override { return Copy(to_host_, bytes); }
  absl::Status Launch(Kernel kernel) override {
    end_ = processors_.Use(Begin(), KernelSeconds(hardware_, kernel.cost));
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
    time_.AdvanceTo(end_);
    return absl::OkStatus();
  }

 private:
  double Begin() const { return std::max(end_, time_.Now()); }
  double CopySeconds(int64_t bytes) const { return static_cast<double>(bytes) / hardware_.copy_bytes_per_second; }
  bool IsShort(int64_t bytes) const { return CopySeconds(bytes) < hardware_.copy_seconds; }
  absl::Status Copy(Resource& bus, int64_t bytes) {
    const double begin = Begin() + hardware_.copy_seconds, seconds = CopySeconds(bytes);
    end_ = IsShort(bytes) ? begin + seconds : bus.Use(begin, seconds);
    return absl::OkStatus();
  }

  const HardwareSpec& hardware_;
  const Time& time_;
  const SharedUse& host_memory_;
  Resource& processors_;
  Resource& to_device_;
  Resource& to_host_;
  double end_ = 0;  // end time of the work so far
};

class SimDevice final : public Device {
 public:
  SimDevice(const HardwareSpec& hardware, SharedUse host_memory)
      : hardware_(hardware),
        host_memory_(host_memory),
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
    return std::make_unique<SimStream>(hardware_, time_, host_memory_, processors_, to_device_, to_host_);
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override { return std::make_unique<SimEvent>(time_); }

  double Now() const override { return time_.Now(); }
  void AdvanceTo(double seconds) override { time_.AdvanceTo(seconds); }

 private:
  const HardwareSpec hardware_;
  const SharedUse host_memory_;
  const std::string name_;
  const Time time_;
  MemoryBudget budget_;
  std::atomic<int64_t> next_address_{kAlignment};
  Resource processors_;
  Resource to_device_;
  Resource to_host_;
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
         static_cast<double>(cost.kernels) * hardware.launch_seconds;
}

std::unique_ptr<Device> NewSimDevice(const HardwareSpec& hardware, SharedUse host_memory) {
  return std::make_unique<SimDevice>(hardware, host_memory);
}

}  // namespace moestro::device
