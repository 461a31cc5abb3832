#include "services/decode/overlap/measure_experts.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/tensor/dtype.h"

namespace moestro::decode {
namespace {

// Repeats of a measurement: more while it takes less than kLongest seconds.
constexpr int kLeastRepeats = 5;
constexpr int kMostRepeats = 51;
constexpr double kLongest = 0.05;
// Before each repeat: as attention has it in a step, threads and devices are idle when a layer's experts begin.
constexpr absl::Duration kBetween = absl::Microseconds(200);
constexpr int64_t kSeveral = 3;     // experts: what these take more than one is what a further one takes
constexpr int64_t kMostSlots = 16;  // that the device's experts are read from in turn

class Measurement {
 public:
  Measurement(const MeasuredExperts& experts, const device::Device& clock)
      : experts_(experts),
        spec_(experts.spec),
        clock_(clock),
        several_(std::min({kSeveral, spec_.experts_per_token, experts.slots})),
        slots_(std::min(kMostSlots, experts.slots)) {
    std::fill_n(experts.device.inputs(), experts.max_rows * spec_.experts_per_token * spec_.hidden_size, ToBf16(1.0f));
  }

  absl::StatusOr<experts::ExpertCosts> Run() {
    experts::ExpertCosts costs;
    MOE_RETURN_IF_ERROR(Load(slots_));
    MOE_ASSIGN_OR_RETURN(const Parts load, Time([&](int64_t count) { return Load(count); }));
    costs.load = load.each;
    costs.load_start = load.once;
    std::vector<double> host, device;
    for (int64_t rows = 1; rows <= experts_.max_rows; rows *= 2) {
      MOE_ASSIGN_OR_RETURN(const Parts on_host, Time([&](int64_t count) { return OnHost(count, rows); }));
      MOE_ASSIGN_OR_RETURN(const Parts on_device, Time([&](int64_t count) { return OnDevice(count, rows); }));
      host.push_back(on_host.each);
      device.push_back(on_device.each);
      if (rows > 1) continue;
      costs.host_start = on_host.once;
      costs.device_start = on_device.once;
      MOE_ASSIGN_OR_RETURN(costs.launch, LaunchSeconds());
    }
    costs.host = experts::SecondsByRows(std::move(host));
    costs.device = experts::SecondsByRows(std::move(device));
    return costs;
  }

 private:
  struct Parts {
    double once = 0;
    double each = 0;
  };
  // What comes once and what comes for every expert, from medians of one and of several.
  absl::StatusOr<Parts> Time(absl::FunctionRef<absl::Status(int64_t count)> run) {
    std::array<std::vector<double>, 2> seconds;
    const double stop = clock_.Now() + kLongest;
    for (int repeat = 0; repeat < kMostRepeats && (repeat < kLeastRepeats || clock_.Now() < stop); ++repeat) {
      for (const size_t which : {0, 1}) {
        absl::SleepFor(kBetween);
        const double begin = clock_.Now();
        MOE_RETURN_IF_ERROR(run(which == 0 ? 1 : several_));
        seconds[which].push_back(clock_.Now() - begin);
      }
    }
    const double one = Median(seconds[0]), several = Median(seconds[1]);
    if (several_ == 1) return Parts{.each = one};
    // Where noise is greater than an expert, it is shared among all.
    const double least = std::min(one, several / static_cast<double>(several_)) / 4;
    const double each = std::clamp((several - one) / static_cast<double>(several_ - 1), least, one);
    return Parts{one - each, each};
  }
  static double Median(std::vector<double>& seconds) {
    const auto middle = seconds.begin() + std::ssize(seconds) / 2;
    std::ranges::nth_element(seconds, middle);
    return *middle;
  }

  // Other experts each time, so that their weights are in no cache unless many are.
  int64_t NextLayer() { return spec_.MoeLayer(next_++ % spec_.num_moe_layers()); }
  int64_t FirstOf(int64_t all, int64_t count) const { return next_ * count % (all - count + 1); }

  absl::Status OnHost(int64_t count, int64_t rows) {
    plan_.experts.clear();
    plan_.routed.clear();
    const int64_t first = FirstOf(spec_.num_experts, count);
    for (int64_t i = 0; i < count; ++i) {
      plan_.experts.push_back({static_cast<int32_t>(first + i), std::ssize(plan_.routed), rows});
      for (int64_t row = 0; row < rows; ++row) plan_.routed.push_back({row, 1.0f});
    }
    experts_.cpu.RunOutputs(NextLayer(), plan_, experts_.device.inputs(), experts_.device.outputs());
    return absl::OkStatus();
  }

  absl::Status Launch(int64_t count, int64_t rows) {
    tasks_.clear();
    const int64_t first = FirstOf(slots_, count);
    for (int64_t i = 0; i < count; ++i) tasks_.push_back({first + i, rows});
    ++next_;
    MOE_RETURN_IF_ERROR(experts_.device.CopyInputs(count * rows));
    return experts_.device.Run(tasks_, 0);
  }
  absl::Status OnDevice(int64_t count, int64_t rows) {
    MOE_RETURN_IF_ERROR(Launch(count, rows));
    return experts_.device.Wait();
  }

  absl::StatusOr<double> LaunchSeconds() {
    std::vector<double> seconds;
    for (int repeat = 0; repeat < kMostRepeats; ++repeat) {
      absl::SleepFor(kBetween);
      const double begin = clock_.Now();
      MOE_RETURN_IF_ERROR(Launch(1, 1));
      seconds.push_back(clock_.Now() - begin);
      MOE_RETURN_IF_ERROR(experts_.device.Wait());
    }
    return Median(seconds);
  }

  // Into the first slots.
  absl::Status Load(int64_t count) {
    for (int64_t slot = 0; slot < count; ++slot) {
      const auto expert = static_cast<int32_t>(next_ % spec_.num_experts);
      MOE_RETURN_IF_ERROR(experts_.device.Load(NextLayer(), expert, slot));
    }
    return experts_.device.Synchronize();
  }

  const MeasuredExperts& experts_;
  const weights::ModelSpec& spec_;
  const device::Device& clock_;
  const int64_t several_;
  const int64_t slots_;
  int64_t next_ = 0;
  model::ExpertPlan plan_;
  std::vector<DeviceExperts::Task> tasks_;
};

}  // namespace

absl::StatusOr<experts::ExpertCosts> MeasureExpertCosts(const MeasuredExperts& experts, const device::Device& clock) {
  return Measurement(experts, clock).Run();
}

}  // namespace moestro::decode
