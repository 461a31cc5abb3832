// Two micro-batches against one in real time: a device whose kernels sleep, and experts that do. So the lanes and turns
// are measured, with the threads that real engines would have, not this machine. Speeds are those of "Cloud-grade SLOs
// for local MoE", section 3.3.1, ten times slower, so that a sleep's lateness is small beside it. Prints JSON.
#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/device/host/host_device.h"
#include "services/decode/overlap/hybrid_forward.h"
#include "tests/support/synthetic_segment.h"

namespace moestro::decode {
namespace {

constexpr double kSlower = 10;
constexpr int64_t kLayers = 61;

void Sleep(double seconds) {
  const device::Clock& clock = device::SteadyClock();
  clock.SleepUntil(clock.Now() + kSlower * seconds);
}

class SleepingEngines final : public engine::DecodeCompute, public engine::RoutedExperts {
 public:
  SleepingEngines(double attend, double experts) : attend_(attend), experts_(experts) {}

  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  void Begin(int, int64_t, const model::CheckedBatch&) override {}
  absl::Status Embed(int, device::Stream&) override { return absl::OkStatus(); }
  absl::Status Attend(int, int64_t, device::Stream& stream) override {
    return stream.Launch({.name = "attend", .cost = {}, .run = [this](void*) {
                            std::lock_guard lock(processors_);
                            Sleep(attend_);
                            return absl::OkStatus();
                          }});
  }
  absl::Status Shared(int, int64_t, device::Stream&) override { return absl::OkStatus(); }
  absl::Status Combine(int, int64_t, device::Stream&) override { return absl::OkStatus(); }
  engine::ExpertIo expert_io(int lane) const override {
    auto& memory = memory_[static_cast<size_t>(lane)];
    return {memory.x, memory.choices, memory.sums};
  }
  absl::Status Logits(std::span<const model::EngineRow>, device::Stream& stream,
                      absl::FunctionRef<void(int64_t, std::span<const float>)>) override {
    return stream.Synchronize();
  }
  absl::Status Run(int64_t, int64_t, const engine::ExpertIo&) override {
    Sleep(experts_);
    return absl::OkStatus();
  }

 private:
  struct Memory {
    uint16_t x[4096];
    model::ExpertChoice choices[64];
    float sums[4096];
  };
  const double attend_;
  const double experts_;
  std::mutex processors_;  // of the device: kernels of both streams take turns
  mutable std::array<Memory, engine::kMaxLanes> memory_ = {};
};

// Seconds of a step of so many sequences, half of them in each micro-batch if there are two.
double Step(double attend, double experts, int64_t sequences) {
  weights::ModelSpec spec = SmallSpec();
  spec.num_layers = kLayers;
  spec.first_dense_layers = 0;
  SleepingEngines engines(attend, experts);
  const auto device = device::NewHostDevice({});
  const SplitPolicy split = [](const model::CheckedBatch& batch) { return batch.runs.size() / 2; };
  const auto forward = HybridForward::Create(spec, *device, engines, engines, {.max_rows = 2, .split = split}).value();
  const kv::KvGeometry geometry{
      .num_layers = spec.num_layers, .kv_dim = spec.kv_dim(), .kv_heads = spec.num_kv_heads, .page_count = 1};
  const uint32_t page[] = {0};
  const std::vector<kv::KvPages> pages(static_cast<size_t>(sequences), kv::KvPages(geometry, nullptr, page));
  std::vector<model::EngineRow> rows(static_cast<size_t>(sequences));
  for (int32_t i = 0; i < sequences; ++i) rows[static_cast<size_t>(i)].sequence = i;
  const double begin = device->Now();
  MOE_CHECK(forward
                ->Forward(
                    {rows, pages}, [] { return absl::OkStatus(); }, [](int64_t, std::span<const float>) {})
                .ok());
  return (device->Now() - begin) / kSlower;
}

int Main() {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const auto& [attend, experts] :
       {std::pair(350e-6, 450e-6), std::pair(450e-6, 350e-6), std::pair(200e-6, 600e-6)}) {
    const double one = Step(attend, experts, 1);
    const double two = Step(attend, experts, 2);
    results.push_back({{"attention_seconds", attend},
                       {"experts_seconds", experts},
                       {"layers", kLayers},
                       {"one_stream_step_seconds", one},
                       {"two_streams_step_seconds", two},
                       {"throughput_ratio", 2 * one / two},
                       {"best_possible_ratio", 2 * (attend + experts) / (2 * std::max(attend, experts))}});
  }
  std::printf("%s\n", results.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace moestro::decode

int main() { return moestro::decode::Main(); }
