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
constexpr absl::Duration kBetween = absl::Microseconds(50);
constexpr int64_t kSeveral = 8;  // experts: what these take more than one is what a further one takes
constexpr int kBesideRepeats = 11;
constexpr double kShare = 0.7;      // of the device's time that the CPU takes beside it
constexpr int64_t kMostSlots = 16;  // that the device's experts are read from in turn

class Measurement {
 public:
  Measurement(const MeasuredExperts& experts, const device::Device& clock)
      : experts_(experts), spec_(experts.spec), clock_(clock), slots_(std::min(kMostSlots, experts.slots)) {
    std::fill_n(experts.device.inputs(), experts.max_rows * spec_.experts_per_token * spec_.hidden_size, ToBf16(1.0f));
  }

  absl::StatusOr<experts::ExpertCosts> Run() {
    experts::ExpertCosts costs;
    MOE_RETURN_IF_ERROR(Load(slots_));
    MOE_ASSIGN_OR_RETURN(const Parts load, Time(1, [&](int64_t count) { return Load(count); }));
    costs.load = load.each;
    costs.load_start = load.once;
    std::vector<double> host, device;
    const auto append = [](std::vector<double>& all, double each) {
      // Noise is left out as far as it shows: more rows take longer, and twice as many at most twice as long.
      all.push_back(all.empty() ? each : std::clamp(each, all.back(), 2 * all.back()));
    };
    for (int64_t rows = 1; rows <= experts_.max_rows; rows *= 2) {
      MOE_ASSIGN_OR_RETURN(const Parts on_host, Time(rows, [&](int64_t count) { return OnHost(count, rows); }));
      MOE_ASSIGN_OR_RETURN(const Parts on_device, Time(rows, [&](int64_t count) { return OnDevice(count, rows); }));
      append(host, on_host.each);
      append(device, on_device.each);
      if (rows > 1) continue;
      costs.host_start = on_host.once;
      costs.device_start = on_device.once;
      MOE_ASSIGN_OR_RETURN(costs.launch, LaunchSeconds());
    }
    MOE_ASSIGN_OR_RETURN(const Slowdown slowdown, Beside(costs, host, device));
    costs.host_beside = slowdown.host;
    costs.device_start *= slowdown.device;
    for (double& each : device) each *= slowdown.device;
    costs.host = experts::SecondsByRows(std::move(host));
    costs.device = experts::SecondsByRows(std::move(device));
    return costs;
  }

 private:
  struct Parts {
    double once = 0;
    double each = 0;
  };
  // How many times as long CPU and device take when both work.
  struct Slowdown {
    double host = 1;
    double device = 1;
  };
  // Experts of so many rows each that fit in the arrays of a pass.
  int64_t MostExperts(int64_t rows) const {
    return std::min({experts_.max_rows * spec_.experts_per_token / rows, experts_.slots, spec_.num_experts});
  }
  // What comes once and what comes for every expert, from medians of one and of several.
  absl::StatusOr<Parts> Time(int64_t rows, absl::FunctionRef<absl::Status(int64_t count)> run) {
    const int64_t several = std::min(kSeveral, MostExperts(rows));
    std::array<std::vector<double>, 2> seconds;
    const double stop = clock_.Now() + kLongest;
    for (int repeat = 0; repeat < kMostRepeats && (repeat < kLeastRepeats || clock_.Now() < stop); ++repeat) {
      for (const size_t which : {0, 1}) {
        absl::SleepFor(kBetween);
        const double begin = clock_.Now();
        MOE_RETURN_IF_ERROR(run(which == 0 ? 1 : several));
        seconds[which].push_back(clock_.Now() - begin);
      }
    }
    const double of_one = Median(seconds[0]), of_several = Median(seconds[1]);
    if (several == 1) return Parts{.each = of_one};
    // Where noise is greater than an expert, it is shared among all.
    const double least = std::min(of_one, of_several / static_cast<double>(several)) / 4;
    const double each = std::clamp((of_several - of_one) / static_cast<double>(several - 1), least, of_one);
    return Parts{of_one - each, each};
  }
  static double Median(std::vector<double>& seconds) {
    const auto middle = seconds.begin() + std::ssize(seconds) / 2;
    std::ranges::nth_element(seconds, middle);
    return *middle;
  }

  // Other experts each time, so that their weights are in no cache unless many are.
  int64_t NextLayer() { return spec_.MoeLayer(next_++ % spec_.num_moe_layers()); }
  int64_t FirstOf(int64_t all, int64_t count) const { return next_ * count % (all - count + 1); }

  // The first `before` rows of the outputs are left to the device.
  absl::Status OnHost(int64_t count, int64_t rows, int64_t before = 0) {
    plan_.experts.clear();
    plan_.routed.clear();
    const int64_t first = FirstOf(spec_.num_experts, count);
    for (int64_t i = 0; i < count; ++i) {
      plan_.experts.push_back({static_cast<int32_t>(first + i), std::ssize(plan_.routed), rows});
      for (int64_t row = 0; row < rows; ++row) plan_.routed.push_back({row, 1.0f});
    }
    experts_.cpu.RunOutputs(NextLayer(), plan_, experts_.device.inputs(),
                            experts_.device.outputs() + before * spec_.hidden_size);
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

  // Both work on as many experts as take about the same time, the CPU on somewhat fewer, so that the device ends last:
  // when it ends alone is not known. The mean of all numbers of rows.
  absl::StatusOr<Slowdown> Beside(const experts::ExpertCosts& costs, std::span<const double> host,
                                  std::span<const double> device) {
    Slowdown sum;
    double points = 0;
    int64_t rows = 1;
    for (size_t power = 0; power < host.size(); ++power, rows *= 2) {
      const int64_t most = MostExperts(rows);
      const int64_t on_device = std::min(kSeveral, most / 2);
      if (on_device == 0) break;
      const double device_seconds = costs.device_start + static_cast<double>(on_device) * device[power];
      const double host_room = kShare * device_seconds - costs.launch - costs.host_start;
      const int64_t on_host = std::clamp<int64_t>(static_cast<int64_t>(host_room / host[power]), 1, most - on_device);
      const double host_seconds = costs.host_start + static_cast<double>(on_host) * host[power];
      std::vector<double> of_host, of_device;
      for (int repeat = 0; repeat < kBesideRepeats; ++repeat) {
        absl::SleepFor(kBetween);
        const double begin = clock_.Now();
        MOE_RETURN_IF_ERROR(Launch(on_device, rows));
        const double launched = clock_.Now();
        MOE_RETURN_IF_ERROR(OnHost(on_host, rows, on_device * rows));
        const double computed = clock_.Now();
        MOE_RETURN_IF_ERROR(experts_.device.Wait());
        of_host.push_back((computed - launched) / host_seconds);
        of_device.push_back((clock_.Now() - begin) / device_seconds);
      }
      sum.host += std::max(1.0, Median(of_host));
      sum.device += std::max(1.0, Median(of_device));
      ++points;
    }
    return points == 0 ? Slowdown() : Slowdown{sum.host / points, sum.device / points};
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
