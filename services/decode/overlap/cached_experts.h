// Routed experts of which the device holds the hot ones, and the CPU computes the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/device/pinned_buffer.h"
#include "common/engine/decode_compute.h"
#include "common/experts/expert_cache.h"
#include "services/decode/overlap/cpu_experts.h"

namespace moestro::decode {

// The device computes its experts' outputs on a stream of its own while the CPU computes the others; the host adds both
// up, in ascending id: the bits are those of the CPU alone. What was missed is loaded by a third stream, after the
// pass.
class CachedExperts final : public engine::RoutedExperts {
 public:
  struct Options {
    int64_t budget_bytes = 0;  // of device memory for experts
    int64_t max_rows = 0;      // passes with more rows (prompts) use the CPU alone and leave the cache as it is
    int64_t loads_per_pass = 1;
  };
  // All outlive it; `compute` has HotExperts for max_rows rows. RESOURCE_EXHAUSTED if the device has not so much
  // memory; INVALID_ARGUMENT if the budget does not pay for an expert of every layer.
  static absl::StatusOr<std::unique_ptr<CachedExperts>> Create(const weights::ModelSpec& spec,
                                                               const model::ModelWeights& weights,
                                                               const CpuKernels& kernels, CpuExperts& cpu,
                                                               engine::DecodeCompute& compute, device::Device& device,
                                                               const Options& options);

  absl::Status Run(int64_t layer, int64_t count, const engine::ExpertIo& rows) override;

  int64_t slots() const { return slots_; }  // of each layer
  // Experts that passes took and that were held, or not. Thread-safe.
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  struct Slot {
    model::MlpWeights weights;  // in device memory
    std::unique_ptr<device::Event> loaded;
  };
  CachedExperts(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
                CpuExperts& cpu, engine::DecodeCompute& compute, device::Device& device, const Options& options,
                int64_t slots, int64_t slot_bytes);
  absl::Status Allocate();
  // In place of those there are, if any: nothing is on them any more, whether there are new ones or not.
  absl::Status NewStreams();
  absl::Status RunWithHits(int64_t layer, const experts::ExpertCache::Pass& pass, const engine::ExpertIo& rows);
  // Puts the device's experts on its stream. Their rows follow each other, in the order of the hits.
  absl::Status LaunchHits(int64_t layer, const experts::ExpertCache::Pass& pass, const engine::ExpertIo& rows);
  absl::Status Load(int64_t layer, const experts::ExpertCache::Load& load);
  Slot& SlotOf(int64_t layer, int64_t slot);

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  const CpuKernels& kernels_;
  CpuExperts& cpu_;
  engine::DecodeCompute& compute_;
  device::Device& device_;
  const Options options_;
  const int64_t slots_;
  const int64_t slot_bytes_;
  experts::ExpertCache cache_;
  model::ExpertPlan plan_;                      // of the pass
  std::vector<engine::HotExpert> hot_experts_;  // the same
  // [max_rows * experts_per_token, hidden]: inputs of the device's experts
  std::optional<device::PinnedBuffer<uint16_t>> x_;
  std::optional<device::PinnedBuffer<float>> outputs_;  // the same of their outputs
  device::Memory device_x_;
  device::Memory device_outputs_;
  device::Memory device_experts_;
  std::vector<Slot> all_slots_;  // [moe_layers, slots]
  std::unique_ptr<device::Stream> compute_stream_;
  std::unique_ptr<device::Stream> load_stream_;
  std::unique_ptr<device::Event> computed_;
  std::atomic<int64_t> hits_ = 0;
  std::atomic<int64_t> misses_ = 0;
};

}  // namespace moestro::decode
