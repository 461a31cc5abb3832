#include "services/decode/overlap/scheduled_experts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "services/decode/overlap/measure_experts.h"

namespace moestro::decode {
namespace {

// Of outputs: the CPU's come first.
constexpr int64_t kHost = 0, kDevice = 1, kGroups = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<ScheduledExperts>> ScheduledExperts::Create(
    const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels, WorkerPool& pool,
    CpuExperts& cpu, engine::DecodeCompute& compute, device::Device& device, const Options& options) {
  const int64_t layers = spec.num_moe_layers();
  const int64_t bytes = DeviceExpertBytes(spec, weights);
  const int64_t slots = experts::CacheSlots(options.budget_bytes, bytes, layers, spec.num_experts, options.most_loads);
  std::unique_ptr<ScheduledExperts> experts(new ScheduledExperts(spec, kernels, pool, cpu, device, options, slots));
  if (experts->held_experts() == 0) {
    const bool whole = options.policy == experts::Policy::kFirstLayers;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d bytes do not hold %s of %d bytes%s", options.budget_bytes,
        whole ? absl::StrFormat("the %d experts of a layer,", spec.num_experts) : std::string("an expert"), bytes,
        whole ? " each"
              : absl::StrFormat(" of each of %d layers, and %d that are being loaded", layers, options.most_loads)));
  }
  MOE_RETURN_IF_ERROR(experts->CreateSlots(weights, compute, device));
  return experts;
}

ScheduledExperts::ScheduledExperts(const weights::ModelSpec& spec, const CpuKernels& kernels, WorkerPool& pool,
                                   CpuExperts& cpu, const device::Device& device, const Options& options, int64_t slots)
    : spec_(spec),
      kernels_(kernels),
      pool_(pool),
      cpu_(cpu),
      device_(device),
      options_(options),
      planner_({.moe_layers = spec.num_moe_layers(),
                .num_experts = spec.num_experts,
                .slots = slots,
                .most_loads = options.most_loads,
                .schedule = options.schedule,
                .policy = options.policy}),
      outputs_(spec, kernels, pool, kGroups, options.max_rows) {}

absl::Status ScheduledExperts::CreateSlots(const model::ModelWeights& weights, engine::DecodeCompute& compute,
                                           device::Device& device) {
  const int64_t routed_rows = options_.max_rows * spec_.experts_per_token;
  const DeviceExperts::Options sizes{.slots = planner_.slots(), .routed_rows = routed_rows};
  MOE_ASSIGN_OR_RETURN(experts_, DeviceExperts::Create(spec_, weights, compute, device, sizes));
  first_ = planner_.Clear();
  if (options_.policy == experts::Policy::kMrs || options_.prefetch_layers > 0) {
    gates_ = std::make_unique<model::GateReuse>(spec_, weights, kernels_, pool_, options_.max_rows);
  }
  tasks_.reserve(static_cast<size_t>(spec_.num_experts));
  others_.reserve(static_cast<size_t>(routed_rows));
  foreseen_choices_.reserve(static_cast<size_t>(routed_rows));
  foreseen_.resize(static_cast<size_t>(options_.prefetch_layers));
  for (std::vector<int32_t>& experts : foreseen_) experts.reserve(static_cast<size_t>(routed_rows));
  return absl::OkStatus();
}

absl::Status ScheduledExperts::MeasureCosts(const device::Device& device) {
  const MeasuredExperts measured{spec_, cpu_, *experts_, planner_.slots(), options_.max_rows};
  MOE_ASSIGN_OR_RETURN(const experts::ExpertCosts costs, MeasureExpertCosts(measured, device));
  SetCosts(costs);
  Forget();
  return absl::OkStatus();
}

void ScheduledExperts::Forget() {
  first_ = planner_.Clear();
  totals_.Clear();
}

absl::Status ScheduledExperts::Load(std::span<const experts::ExpertPlanner::Load> loads) {
  for (const experts::ExpertPlanner::Load& load : loads) {
    MOE_RETURN_IF_ERROR(experts_->Load(spec_.MoeLayer(load.moe_layer), load.expert, load.slot, {load.begin, load.end}));
  }
  return absl::OkStatus();
}

experts::PassRouting ScheduledExperts::RoutingOf(int64_t layer, int64_t count, const engine::ExpertIo& rows) {
  const auto choices = std::span(rows.choices, static_cast<size_t>(count * spec_.experts_per_token));
  if (gates_ == nullptr) return {.choices = choices, .rows = count};
  const model::LayerRouting routing{.layer = layer, .choices = choices, .x = rows.x};
  if (options_.policy == experts::Policy::kMrs) {
    const int64_t next = std::min(spec_.experts_per_token, spec_.num_experts - spec_.experts_per_token);
    others_.resize(static_cast<size_t>(count * next));
    if (next > 0) gates_->NextBest(routing, others_);
  }
  foreseen_choices_.resize(choices.size());
  const int64_t behind = spec_.num_moe_layers() - 1 - spec_.MoeLayersBelow(layer);
  for (int64_t ahead = 1; ahead <= std::ssize(foreseen_); ++ahead) {
    std::vector<int32_t>& experts = foreseen_[static_cast<size_t>(ahead - 1)];
    experts.clear();
    if (ahead > behind) continue;
    gates_->Foresee(routing, ahead, foreseen_choices_);
    for (const model::ExpertChoice& choice : foreseen_choices_) {
      if (choice.expert >= 0) experts.push_back(choice.expert);
    }
  }
  return {.choices = choices, .rows = count, .others = others_, .foreseen = foreseen_};
}

absl::Status ScheduledExperts::Run(int64_t layer, int64_t count, const engine::ExpertIo& rows) {
  if (count > options_.max_rows) return cpu_.Run(layer, count, rows);
  absl::Status status = Load(std::exchange(first_, {}));
  const experts::ExpertPlanner::Pass& pass = planner_.Next(spec_.MoeLayersBelow(layer), RoutingOf(layer, count, rows));
  if (status.ok()) status = RunPlanned(layer, count, pass, rows);
  if (status.ok()) return status;
  // What the slots hold is not known any more.
  first_ = planner_.Clear();
  MOE_RETURN_IF_ERROR(experts_->Renew());
  return status;
}

absl::Status ScheduledExperts::RunPlanned(int64_t layer, int64_t count, const experts::ExpertPlanner::Pass& pass,
                                          const engine::ExpertIo& rows) {
  const experts::SchedulePlan& plan = pass.plan;
  const double begin = device_.Now();
  if (plan.device.empty()) {
    MOE_RETURN_IF_ERROR(Load(pass.behind));
    MOE_RETURN_IF_ERROR(cpu_.Run(layer, count, rows));
  } else {
    Arrange(pass, count, rows);
    MOE_RETURN_IF_ERROR(Launch(pass));
    if (!plan.host.empty()) cpu_.RunOutputs(layer, outputs_.group(kHost), rows.x, experts_->outputs());
    MOE_RETURN_IF_ERROR(experts_->Wait());
    outputs_.Add(experts_->outputs(), rows);
  }
  const int64_t hits = std::ranges::count_if(pass.uses, &experts::ExpertUse::held);
  totals_.Add({.hits = hits,
               .misses = std::ssize(pass.uses) - hits,
               .on_device = std::ssize(plan.device),
               .loads = pass.ended,
               .loads_ahead = pass.ahead,
               .foreseen_hits = pass.foreseen_hits,
               .planned_seconds = plan.makespan(),
               .measured_seconds = device_.Now() - begin});
  return absl::OkStatus();
}

void ScheduledExperts::Arrange(const experts::ExpertPlanner::Pass& pass, int64_t count, const engine::ExpertIo& rows) {
  const int64_t hidden = spec_.hidden_size;
  const experts::SchedulePlan& plan = pass.plan;
  // Its experts are the pass's uses, in the same order.
  const model::ExpertPlan& sorted = outputs_.Sort(count, rows);
  tasks_.clear();
  const size_t held = plan.device.size() - plan.loads.size();
  for (size_t i = 0; i < plan.device.size(); ++i) {
    const auto place = static_cast<size_t>(plan.device[i]);
    outputs_.Give(place, kDevice);
    const bool is_loading = i >= held;
    const int64_t slot = is_loading ? pass.loads[i - held].slot : pass.uses[place].slot;
    tasks_.push_back({slot, sorted.experts[place].count, is_loading});
  }
  for (size_t place = 0; place < sorted.experts.size(); ++place) {
    if (!outputs_.IsGiven(place)) outputs_.Give(place, kHost);
  }
  outputs_.Place();
  uint16_t* to = experts_->inputs();
  for (const model::RoutedRow& row : outputs_.group(kDevice).routed) {
    std::memcpy(to, rows.x + row.row * hidden, static_cast<size_t>(hidden) * sizeof(uint16_t));
    to += hidden;
  }
}

absl::Status ScheduledExperts::Launch(const experts::ExpertPlanner::Pass& pass) {
  MOE_RETURN_IF_ERROR(experts_->CopyInputs(std::ssize(outputs_.group(kDevice).routed)));
  MOE_RETURN_IF_ERROR(Load(pass.loads));
  MOE_RETURN_IF_ERROR(Load(pass.behind));
  return experts_->Run(tasks_, outputs_.first_output(kDevice));
}

}  // namespace moestro::decode
