// Stream-loading prefill: a prompt goes through the model layer by layer while the weights stream to the device and are
// forgotten again. README.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/engine/prefill_compute.h"
#include "common/model/binding.h"
#include "services/prefill/stream/memory_plan.h"
#include "services/prefill/stream/pipeline.h"
#include "services/prefill/stream/prompt_prefill.h"

namespace moestro::prefill {

class StreamPrefill final : public PromptPrefill {
 public:
  // All outlive it. `weights` point into host memory that stays. limits.device_bytes 0: what the device has.
  StreamPrefill(device::Device& device, const weights::ModelSpec& spec, const model::ModelWeights& weights,
                engine::PrefillCompute& compute, const MemoryLimits& limits);

  // How a prompt of so many rows would be run. RESOURCE_EXHAUSTED if the device is too small for it.
  absl::StatusOr<MemoryPlan> Plan(int64_t rows, model::MlaForm form);

  model::MlaForm FormFor(model::MlaForm wanted) const override {
    if (compute_.CheckForm(wanted).ok()) return wanted;
    return wanted == model::MlaForm::kAbsorbed ? model::MlaForm::kUnabsorbed : model::MlaForm::kAbsorbed;
  }
  absl::Status CheckFits(IndexRange positions, model::MlaForm form) override {
    return Plan(positions.size(), form).status();
  }
  // On a host device with the bits of Engine::Forward. After an error, too, the device's memory is free again.
  absl::Status Run(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages, model::MlaForm form,
                   absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                   absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

  StreamCounters run_counters() const override { return report_.counters; }
  absl::Status WriteTrace(const std::string& path) const override {
    return WriteChromeTrace(report_.timeline, report_.begin, path);
  }
  // Of all runs, those that failed included.
  const StreamCounters& counters() const { return counters_; }
  // Of the last run, with its timeline (WriteChromeTrace).
  const PipelineReport& report() const { return report_; }

 private:
  const std::vector<engine::Module>& ModulesOf(model::MlaForm form);
  ScheduleOptions OptionsFor(const MemoryPlan& plan) const;
  absl::Status RunPasses(const engine::PromptRun& run, const Schedule& schedule,
                         absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                         absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

  device::Device& device_;
  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  engine::PrefillCompute& compute_;
  const MemoryLimits limits_;
  std::map<model::MlaForm, std::vector<engine::Module>> modules_;  // filled when first needed
  StreamCounters counters_;
  PipelineReport report_;
};

}  // namespace moestro::prefill
