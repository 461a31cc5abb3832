// The device's part of a decode step as costs: operations and bytes of its kernels, which compute nothing.
#pragma once

#include <array>
#include <cstdint>

#include "common/device/device.h"
#include "common/engine/decode_compute.h"
#include "common/roofline/work_count.h"
#include "common/weights/model_spec.h"

namespace moestro {

class SimDecode final : public DecodeCompute {
 public:
  // Both outlive it.
  SimDecode(const ModelSpec& spec, const ModelCount& count) : spec_(spec), count_(count) {}

  absl::Status CheckForm(MlaForm) const override { return absl::OkStatus(); }
  void Begin(int lane, int64_t first_row, const CheckedBatch& batch) override;
  absl::Status Embed(int lane, device::Stream& stream) override;
  absl::Status Attend(int lane, int64_t layer, device::Stream& stream) override;
  absl::Status Shared(int lane, int64_t layer, device::Stream& stream) override;
  absl::Status Combine(int lane, int64_t layer, device::Stream& stream) override;
  HandOver hand_over(int) const override { return {}; }
  absl::Status Logits(std::span<const EngineRow> rows, device::Stream& stream,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

 private:
  struct State {
    int64_t rows = 0;
    int64_t visible = 0;  // pairs of a row and a token that it sees
  };
  const State& Lane(int lane) const { return lanes_[static_cast<size_t>(lane)]; }

  const ModelSpec& spec_;
  const ModelCount& count_;
  std::array<State, kMaxLanes> lanes_;
};

}  // namespace moestro
