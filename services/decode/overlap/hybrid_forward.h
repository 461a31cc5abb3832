// A decode step on a device and the CPU: one micro-batch, or two that take turns (paper, section 3.3.1). The threads of
// the lanes allocate nothing once a step has been as large.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "services/decode/forward_pass.h"
#include "services/decode/overlap/helper_thread.h"
#include "services/decode/overlap/lane.h"

namespace moestro::decode {

// How many of the batch's runs the first micro-batch takes: all of them for one micro-batch, else 1 to all but one.
using SplitPolicy = std::function<size_t(const model::CheckedBatch& batch)>;

class HybridForward final : public ForwardPass {
 public:
  struct Options {
    int64_t max_rows = 0;
    SplitPolicy split;
    // As LaneShared::on_routing; may be empty.
    std::function<void(const model::LayerRouting& routing)> on_routing = {};
  };
  // All must outlive it. `compute` and `experts` take max_rows rows.
  static absl::StatusOr<std::unique_ptr<HybridForward>> Create(const weights::ModelSpec& spec, device::Device& device,
                                                               engine::DecodeCompute& compute,
                                                               engine::RoutedExperts& experts, Options options);

  const weights::ModelSpec& spec() const override { return shared_.spec; }
  int64_t max_rows() const override { return options_.max_rows; }
  // The bits are those of one batch on the engine, if the kernels are the engine's, however the batch is cut. Sequences
  // whose KV pages the device cannot hold together go through the layers in parts, one after the other.
  absl::Status Forward(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                       absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

  // Steps so far that were cut in two. Thread-safe.
  int64_t overlapped_steps() const { return overlapped_steps_; }

  // For measurements, between steps.
  LaneShared& shared() { return shared_; }
  Lane& lane(int index) { return *lanes_[static_cast<size_t>(index)]; }

 private:
  HybridForward(const weights::ModelSpec& spec, device::Device& device, engine::DecodeCompute& compute,
                engine::RoutedExperts& experts, Options options)
      : options_(std::move(options)), shared_{spec, device, compute, experts, options_.on_routing} {}
  // One part of the step, the rows from `first_row` on.
  absl::Status ForwardPart(const model::CheckedBatch& part, int64_t first_row,
                           absl::FunctionRef<absl::Status()> interrupted,
                           absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);
  absl::Status RunLanes(const model::CheckedBatch& part, absl::FunctionRef<absl::Status()> interrupted);
  absl::Status RunBoth(absl::FunctionRef<absl::Status()> interrupted);

  const Options options_;
  LaneShared shared_;
  model::CheckedBatch batch_;                                // of the step
  model::CheckedBatch part_;                                 // of it, where it comes in parts
  std::array<model::CheckedBatch, engine::kMaxLanes> cuts_;  // of a part, for the lanes
  std::array<std::unique_ptr<Lane>, engine::kMaxLanes> lanes_;
  HelperThread second_thread_;
  std::atomic<int64_t> overlapped_steps_ = 0;
};

}  // namespace moestro::decode
