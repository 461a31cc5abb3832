// Computes a step: on the CPU alone, or with a device.
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/model/engine.h"

namespace moestro::decode {

class ForwardPass {  // one Forward at a time
 public:
  virtual ~ForwardPass() = default;
  virtual const weights::ModelSpec& spec() const = 0;
  virtual int64_t max_rows() const = 0;
  // As Engine::Forward. UNAVAILABLE if the device is lost for good: no later pass can succeed.
  virtual absl::Status Forward(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                               absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) = 0;
};

class CpuForward final : public ForwardPass {
 public:
  explicit CpuForward(model::Engine& engine) : engine_(engine) {}  // must outlive this object
  const weights::ModelSpec& spec() const override { return engine_.spec(); }
  int64_t max_rows() const override { return engine_.max_rows(); }
  absl::Status Forward(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                       absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override {
    return engine_.Forward(batch, interrupted, on_logits);
  }

 private:
  model::Engine& engine_;
};

}  // namespace moestro::decode
