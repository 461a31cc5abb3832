#include "services/prefill/stream/stream_prefill.h"

#include <algorithm>
#include <utility>

#include "common/base/exceptions.h"
#include "common/base/status.h"

namespace moestro::prefill {
namespace {

// Slices of the head that fit into the memory for dense weights at once: one is computed while others are loaded.
constexpr int64_t kHeadSlices = 4;

}  // namespace

StreamPrefill::StreamPrefill(device::Device& device, const weights::ModelSpec& spec, const model::ModelWeights& weights,
                             engine::PrefillCompute& compute, const MemoryLimits& limits)
    : device_(device), spec_(spec), weights_(weights), compute_(compute), limits_(limits) {}

const std::vector<engine::Module>& StreamPrefill::ModulesOf(model::MlaForm form) {
  std::vector<engine::Module>& modules = modules_[form];
  if (modules.empty()) modules = engine::ListModules(spec_, weights_, form, limits_.dense_bytes / kHeadSlices);
  return modules;
}

ScheduleOptions StreamPrefill::OptionsFor(const MemoryPlan& plan) const {
  return {.passes = plan.passes,
          .ring_slots = plan.ring_slots,
          .dense_bytes = limits_.dense_bytes,
          .max_experts_together = limits_.max_experts_together};
}

absl::StatusOr<MemoryPlan> StreamPrefill::Plan(int64_t rows, model::MlaForm form) {
  MemoryLimits limits = limits_;
  const int64_t free = device_.memory_free();
  limits.device_bytes = limits.device_bytes > 0 ? std::min(limits.device_bytes, free) : free;
  MOE_ASSIGN_OR_RETURN(const MemoryPlan plan,
                       PlanMemory(rows, spec_.num_experts, SlotBytes(ModulesOf(form)), limits,
                                  [&](int64_t pass_rows) { return compute_.ActivationBytes(pass_rows); }));
  // Whether the dense weights fit, which depends on the form: all passes are alike.
  MOE_RETURN_IF_ERROR(MakeSchedule(ModulesOf(form), OptionsFor({1, plan.pass_rows, plan.ring_slots})).status());
  return plan;
}

absl::Status StreamPrefill::Run(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages,
                                model::MlaForm form, absl::FunctionRef<absl::Status()> interrupted,
                                const StreamEvents& events,
                                absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  report_ = {};
  if (rows.empty()) return absl::InvalidArgumentError("a streamed run needs rows");
  MOE_ASSIGN_OR_RETURN(const MemoryPlan plan, Plan(std::ssize(rows), form));
  const std::vector<engine::Module> modules = engine::ModulesFrom(events.first_layer, ModulesOf(form));
  MOE_ASSIGN_OR_RETURN(const Schedule schedule, MakeSchedule(modules, OptionsFor(plan)));
  const engine::PromptRun run{rows, pages, form, plan.passes, plan.spare_bytes, events.residuals, events.first_layer};
  const absl::Status status = CatchExceptions([&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(compute_.Begin(run));
    return RunPasses(run, schedule, interrupted, events, on_logits);
  });
  compute_.End();
  counters_.Add(report_.counters);
  return status;
}

absl::Status StreamPrefill::RunPasses(const engine::PromptRun& run, const Schedule& schedule,
                                      absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const auto on_released = [&](const Step& step) {
    if (events.on_step) events.on_step();
    if (step.ends_layer && events.on_layer) events.on_layer(run.PassRows(step.pass), step.layer);
    if (step.ends_pass && events.on_pass) events.on_pass(run.PassRows(step.pass));
  };
  MOE_RETURN_IF_ERROR(RunPipeline(device_, schedule, compute_, interrupted, on_released, &report_));
  return compute_.Logits(on_logits);
}

}  // namespace moestro::prefill
