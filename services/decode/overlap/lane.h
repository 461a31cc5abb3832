// One micro-batch on its way through the layers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/engine/decode_compute.h"
#include "common/model/batch.h"
#include "services/decode/overlap/lane_order.h"
#include "services/decode/overlap/pinned_expert_io.h"

namespace moestro::decode {

// How long a lane's thread asks for choices that the device writes into host memory, before it sleeps until the device
// has done its work, or has failed: longer than attention of few rows takes.
inline constexpr double kSpinSeconds = 2e-3;

// What the lanes of a step share.
struct LaneShared {
  const weights::ModelSpec& spec;
  device::Device& device;
  engine::DecodeCompute& compute;
  engine::RoutedExperts& experts;
  // Told of a layer's routing by the threads of the lanes, one at a time, when the CPU workers are free. Empty: not
  // told.
  std::function<void(const model::LayerRouting& routing)> on_routing;
  LaneOrder device_order{device};  // of putting a layer on the device, so that its kernels come in a fixed order
  LaneOrder expert_order{device};  // of the CPU workers
  int64_t first_row = 0;           // of the step's rows, where it comes in parts: of this part
  double spin_seconds = kSpinSeconds;
  std::atomic<bool> failed = {};  // a lane of this step has: the others need not go on
};

// Paper, section 3.3.1 and Fig. 7. A layer with experts:
//
//   device   attention, router ─┬─ shared expert ──────────────┬─ combine, next attention ...
//   copies                      └─ x, choices ─┐        sums ──┘
//   CPU                                        └─ experts ─┘
//
// The lane's thread waits for the device once a layer, for x and choices; the device waits for the host in that it gets
// the rest of the layer's work only then. A device whose kernels write host memory leaves them there, with flags. While
// a lane's thread waits, the CPU works for the other lane; while the CPU works for it, the device does.
class Lane {
 public:
  static absl::StatusOr<std::unique_ptr<Lane>> Create(LaneShared& shared, int index, int64_t max_rows);

  // Takes the rows through all layers and returns when the device has done them. `interrupted` is asked before every
  // layer. After an error nothing of the step is on the stream any more. UNAVAILABLE as Renew says.
  absl::Status Run(int64_t first_row, const model::CheckedBatch& batch, absl::FunctionRef<absl::Status()> interrupted);

  // Puts what is handed over in a layer on the stream: x and choices, sums; not what the device writes or reads here.
  absl::Status CopyToHost(int64_t rows);
  absl::Status CopyToDevice(int64_t rows);
  // Waits for what is on the stream and forgets that it has failed with `failure`, which it returns. UNAVAILABLE
  // instead if the device gives no other stream: it is lost, and every later step will fail so, too.
  absl::Status Renew(const absl::Status& failure);

  device::Stream& stream() { return *stream_; }
  const engine::ExpertIo& host() const { return host_; }
  bool hands_over() const { return hands_over_; }  // DecodeCompute::HandsOver

 private:
  Lane(LaneShared& shared, int index, PinnedExpertIo memory)
      : shared_(shared), index_(index), memory_(std::move(memory)), host_(memory_.get()) {}
  absl::Status NewStream();
  absl::Status RunLayers(int64_t first_row, int64_t rows, absl::FunctionRef<absl::Status()> interrupted);
  // Waits for the layer's x and choices.
  absl::Status AwaitChoices();
  // Puts the layer on the stream, behind what is left of the one before it; num_layers: what is left of the last one.
  absl::Status LaunchLayer(int64_t layer, int64_t rows);

  LaneShared& shared_;
  const int index_;
  PinnedExpertIo memory_;
  const engine::ExpertIo host_;
  bool reads_sums_ = false;  // DecodeCompute::ReadSums
  bool hands_over_ = false;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Event> ready_;  // x and choices are there; or the last layer is done
};

}  // namespace moestro::decode
