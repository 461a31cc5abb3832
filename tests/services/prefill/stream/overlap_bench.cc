// How much of the shorter of loading and computing a streamed run hides behind the longer: wall / max(load, compute),
// for computing from a quarter to four times as long as loading, and for several ring lengths. Copies have a fixed
// bandwidth, kernels sleep: so the pipeline is measured, not this machine. Prints JSON.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/base/check.h"
#include "common/device/host/host_device.h"
#include "common/model/binding.h"
#include "services/prefill/stream/stream_prefill.h"
#include "tests/support/synthetic_segment.h"

namespace moestro {
namespace {

constexpr double kCopyBytesPerSecond = 250e6;  // an expert takes 1.6 ms: far longer than a thread needs to wake up

// Every step sleeps as long as its modules take to load, times a factor.
class SleepCompute final : public StreamCompute {
 public:
  explicit SleepCompute(double factor) : factor_(factor) {}

  int64_t ActivationBytes(int64_t) const override { return 0; }
  absl::Status Begin(const PromptRun&) override {
    free_at_ = 0;
    return absl::OkStatus();
  }
  absl::Status Launch(const Step& step, std::span<const StagedModule> modules, device::Stream& stream,
                      const std::atomic<bool>&) override {
    double bytes = 0;
    if (step.releases.size() > 0) {
      for (const StagedModule& m : modules) bytes += static_cast<double>(m.module->image.bytes);
    }
    return stream.Launch({.name = StepName(step.kind), .cost = {}, .run = [this, bytes](void*) {
                            const device::Clock& clock = device::SteadyClock();
                            constexpr double kLate = 1e-3;  // of a sleep: made up for by the next one
                            free_at_ = std::max(free_at_, clock.Now() - kLate) + factor_ * bytes / kCopyBytesPerSecond;
                            clock.SleepUntil(free_at_);
                            return absl::OkStatus();
                          }});
  }
  absl::Status Store(const Step&, device::Stream&) override { return absl::OkStatus(); }
  absl::Status Logits(absl::FunctionRef<void(int64_t, std::span<const float>)>) override { return absl::OkStatus(); }
  void End() override {}

 private:
  const double factor_;
  double free_at_ = 0;
};

ModelSpec Spec() {
  ModelSpec spec = SmallSpec();
  spec.hidden_size = 256;
  spec.moe_intermediate_size = 512;
  spec.num_layers = 8;
  spec.num_experts = 16;
  return spec;
}

int Main() {
  const SyntheticSegment model = MakeSyntheticSegment({.spec = Spec()});
  const ModelSpec& spec = model.segment->spec();
  const ModelWeights weights = BindWeights(*model.segment).value();
  const auto device =
      device::NewHostDevice({.memory_bytes = int64_t{1} << 30, .copy_bytes_per_second = kCopyBytesPerSecond});
  const std::vector<EngineRow> rows(1);
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  double worst = 0;
  for (const int64_t slots : {2, 4, 16}) {
    for (const double factor : {0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0}) {
      SleepCompute compute(factor);
      StreamPrefill prefill(*device, spec, weights, compute, {.dense_bytes = 4 << 20, .ring_slots = slots});
      MOE_CHECK(prefill
                    .Run(
                        rows, {}, MlaForm::kUnabsorbed, [] { return absl::OkStatus(); }, {},
                        [](int64_t, std::span<const float>) {})
                    .ok());
      const StreamCounters& c = prefill.counters();
      const double load = static_cast<double>(c.streamed_bytes) / kCopyBytesPerSecond;
      const double ratio = c.wall_seconds / std::max(load, factor * load);
      worst = std::max(worst, ratio);
      results.push_back({{"ring_slots", slots},
                         {"compute_over_load", factor},
                         {"load_seconds", load},
                         {"wall_seconds", c.wall_seconds},
                         {"stall_seconds", c.stall_seconds},
                         {"wall_over_longer", ratio}});
    }
  }
  std::printf("%s\n", nlohmann::ordered_json({{"worst_wall_over_longer", worst}, {"runs", results}}).dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace moestro

int main() { return moestro::Main(); }
