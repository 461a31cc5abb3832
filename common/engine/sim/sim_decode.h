// The device's part of a decode step as costs: operations and bytes of its kernels, which compute nothing. As the CUDA
// kernels do, they write x and choices to host memory, then a flag, and read the sums of experts there.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "common/device/device.h"
#include "common/engine/decode_compute.h"
#include "common/engine/step_launches.h"
#include "common/roofline/work_count.h"
#include "common/weights/model_spec.h"

namespace moestro::engine {

class SimDecode final : public DecodeCompute {
 public:
  // All outlive it.
  SimDecode(device::Device& device, const weights::ModelSpec& spec, const roofline::ModelCount& count)
      : device_(device), spec_(spec), count_(count), launches_(LaunchesOf(spec)) {}

  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  void Begin(int lane, int64_t first_row, const model::CheckedBatch& batch) override;
  absl::Status Embed(int lane, device::Stream& stream) override;
  absl::Status Attend(int lane, int64_t layer, device::Stream& stream) override;
  absl::Status Shared(int lane, int64_t layer, device::Stream& stream) override;
  absl::Status Combine(int lane, int64_t layer, device::Stream& stream) override;
  ExpertIo expert_io(int) const override { return {}; }
  bool ReadSums(int, const float*, int64_t) override { return true; }
  bool HandsOver(int lane, const ExpertIo&, int64_t) override;
  bool IsHandedOver(int lane) override;
  absl::Status Logits(std::span<const model::EngineRow> rows, device::Stream& stream,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

 private:
  struct State {
    int64_t rows = 0;
    int64_t visible = 0;  // pairs of a row and a token that it sees
  };
  const State& Lane(int lane) const { return lanes_[static_cast<size_t>(lane)]; }

  device::Device& device_;
  const weights::ModelSpec& spec_;
  const roofline::ModelCount& count_;
  const StepLaunches launches_;
  std::array<State, kMaxLanes> lanes_;
  std::array<std::unique_ptr<device::Event>, kMaxLanes> written_;  // x and choices of the lane's last layer
};

}  // namespace moestro::engine
