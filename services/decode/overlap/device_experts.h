// Routed experts in device memory: slots for them, their loads, and their computation beside the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/device/pinned_buffer.h"
#include "common/engine/decode_compute.h"

namespace moestro::decode {

// Device memory of an expert of the largest layer: layers may have other types, as in files of Q4_K_M.
int64_t DeviceExpertBytes(const weights::ModelSpec& spec, const model::ModelWeights& weights);

// One pass at a time: CopyInputs, then Load any number of times, then Run, then Wait. Loads may also come when the pass
// is done. By one thread at a time.
class DeviceExperts {
 public:
  struct Options {
    int64_t slots = 0;        // for experts of any layer
    int64_t routed_rows = 0;  // of a pass: each row counts once for each of its experts
  };
  // All outlive it; `compute` has HotExperts for so many rows. RESOURCE_EXHAUSTED if the device has not so much memory.
  static absl::StatusOr<std::unique_ptr<DeviceExperts>> Create(const weights::ModelSpec& spec,
                                                               const model::ModelWeights& weights,
                                                               engine::DecodeCompute& compute, device::Device& device,
                                                               const Options& options);

  // An expert of a pass, for the next `rows` rows of the inputs.
  struct Task {
    int64_t slot = 0;
    int64_t rows = 0;
    bool is_loading = false;  // within the pass: only this expert and those behind it wait
  };

  // In pinned memory. inputs: BF16 [routed_rows, hidden]; outputs: F32, the same.
  uint16_t* inputs() { return inputs_->get(); }
  float* outputs() { return outputs_->get(); }

  // Puts the first so many inputs on their way to the device. Loads that follow wait for it.
  absl::Status CopyInputs(int64_t rows);
  // Of an expert's bytes, 0 to 1.
  struct Part {
    double begin = 0;
    double end = 1;
  };
  // Copies a layer's expert to a slot that no pass uses, in one part or in several that follow each other.
  absl::Status Load(int64_t layer, int32_t expert, int64_t slot, Part part = {0, 1});
  // Computes outputs first_output, first_output + 1, ... of the inputs.
  absl::Status Run(std::span<const Task> tasks, int64_t first_output);
  // Until the outputs are there.
  absl::Status Wait() { return computed_->Wait(); }
  // After a failure: new streams, on which nothing is. What the slots hold is not known any more.
  absl::Status Renew();
  // Until nothing is on the streams.
  absl::Status Synchronize();

 private:
  struct Slot {
    model::MlpWeights weights;  // in device memory
    std::unique_ptr<device::Event> loaded;
  };
  DeviceExperts(const weights::ModelSpec& spec, const model::ModelWeights& weights, engine::DecodeCompute& compute,
                device::Device& device)
      : spec_(spec),
        weights_(weights),
        compute_(compute),
        device_(device),
        slot_bytes_(DeviceExpertBytes(spec, weights)) {}
  absl::Status Allocate(const Options& options);

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  engine::DecodeCompute& compute_;
  device::Device& device_;
  const int64_t slot_bytes_;
  std::vector<engine::HotExpert> hot_;  // of the pass
  std::optional<device::PinnedBuffer<uint16_t>> inputs_;
  std::optional<device::PinnedBuffer<float>> outputs_;
  device::Memory device_inputs_;
  device::Memory device_outputs_;
  device::Memory memory_;  // [slots, slot_bytes_]
  std::vector<Slot> slots_;
  std::unique_ptr<device::Stream> compute_stream_;
  std::unique_ptr<device::Stream> load_stream_;
  std::unique_ptr<device::Event> copied_;  // inputs
  std::unique_ptr<device::Event> computed_;
};

}  // namespace moestro::decode
