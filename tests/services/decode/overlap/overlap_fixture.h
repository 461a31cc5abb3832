// Devices and experts for tests of steps on a device: with the engine's kernels, or with times only.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/device/sim/sim_device.h"
#include "common/engine/host/host_decode.h"
#include "common/model/binding.h"
#include "services/decode/overlap/cpu_experts.h"
#include "services/decode/overlap/hybrid_forward.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::decode {

inline size_t OneMicroBatch(const model::CheckedBatch& batch) { return batch.runs.size(); }

// Experts that do something before each call.
class WatchedExperts final : public engine::RoutedExperts {
 public:
  WatchedExperts(engine::RoutedExperts& experts, std::function<void()> before)
      : experts_(experts), before_(std::move(before)) {}
  absl::Status Run(int64_t layer, int64_t count, const engine::ExpertIo& rows) override {
    before_();
    return experts_.Run(layer, count, rows);
  }

 private:
  engine::RoutedExperts& experts_;
  std::function<void()> before_;
};

// A step with the engine's kernels, on the device given. Device, segment and pool outlive it.
class HostHybrid {
 public:
  HostHybrid(
      device::Device& device, const weights::WeightSegment& segment, WorkerPool& pool, int64_t max_rows,
      SplitPolicy split, std::function<void()> before_experts = [] {})
      : weights_(model::BindWeights(segment).value()),
        compute_(segment.spec(), weights_, TestKernels(), max_rows, /*threads=*/2),
        cpu_experts_(segment.spec(), weights_, TestKernels(), pool, max_rows),
        experts_(cpu_experts_, std::move(before_experts)),
        forward_(HybridForward::Create(segment.spec(), device, compute_, experts_,
                                       {.max_rows = max_rows, .split = std::move(split)})
                     .value()) {}

  HybridForward& forward() { return *forward_; }

 private:
  model::ModelWeights weights_;
  engine::HostDecode compute_;
  CpuExperts cpu_experts_;
  WatchedExperts experts_;
  std::unique_ptr<HybridForward> forward_;
};

// Seconds of a layer of the simulated engines.
struct EngineSpeeds {
  double attend = 0;
  double shared = 0;
  double experts = 0;
};

// Two engines whose speeds are given, with a virtual clock: a device whose kernels, and experts which, take so long and
// do nothing.
class TimedEngines final : public engine::DecodeCompute, public engine::RoutedExperts {
 public:
  TimedEngines(const weights::ModelSpec& spec, const EngineSpeeds& speeds, SplitPolicy split)
      : spec_(spec),
        speeds_(speeds),
        device_(device::NewSimDevice({.name = "timed",
                                      .gpu_memory_bytes = 1e9,
                                      .gpu_memory_bytes_per_second = 1e12,
                                      .fp8_flops_per_second = 1e12,
                                      .bf16_flops_per_second = 1e12,
                                      .copy_bytes_per_second = 1e15,
                                      .launch_seconds = kTick})),
        forward_(
            HybridForward::Create(spec_, *device_, *this, *this, {.max_rows = 8, .split = std::move(split)}).value()) {}

  // Seconds of a step of one row each for `sequences` sequences.
  double Step(int64_t sequences) {
    const kv::KvGeometry geometry{.num_layers = spec_.num_layers, .kv_dim = spec_.kv_dim(), .page_count = 1};
    const uint32_t page[] = {0};
    const std::vector<kv::KvPages> pages(static_cast<size_t>(sequences), kv::KvPages(geometry, nullptr, page));
    std::vector<model::EngineRow> rows(static_cast<size_t>(sequences));
    for (int32_t i = 0; i < sequences; ++i) rows[static_cast<size_t>(i)].sequence = i;
    const double begin = device_->Now();
    EXPECT_TRUE(forward_
                    ->Forward(
                        {rows, pages}, [] { return absl::OkStatus(); }, [](int64_t, std::span<const float>) {})
                    .ok());
    return device_->Now() - begin;
  }

  HybridForward& forward() { return *forward_; }

  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  void Begin(int, int64_t, const model::CheckedBatch&) override {}
  absl::Status Embed(int, device::Stream&) override { return absl::OkStatus(); }
  absl::Status Attend(int, int64_t, device::Stream& stream) override { return Launch(speeds_.attend, stream); }
  absl::Status Shared(int, int64_t, device::Stream& stream) override { return Launch(speeds_.shared, stream); }
  absl::Status Combine(int, int64_t, device::Stream&) override { return absl::OkStatus(); }
  engine::ExpertIo expert_io(int) const override { return {}; }
  absl::Status Logits(std::span<const model::EngineRow>, device::Stream& stream,
                      absl::FunctionRef<void(int64_t, std::span<const float>)>) override {
    return stream.Synchronize();
  }
  absl::Status Run(int64_t, int64_t, const engine::ExpertIo&) override {
    device_->AdvanceTo(device_->Now() + speeds_.experts);
    return absl::OkStatus();
  }

 private:
  static constexpr double kTick = 1e-9;  // a kernel "launches" as often as it takes ticks

  static absl::Status Launch(double seconds, device::Stream& stream) {
    return stream.Launch(
        {.name = "timed", .cost = {.kernels = static_cast<int64_t>(seconds / kTick + 0.5)}, .run = {}});
  }

  const weights::ModelSpec spec_;
  const EngineSpeeds speeds_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<HybridForward> forward_;
};

}  // namespace moestro::decode
