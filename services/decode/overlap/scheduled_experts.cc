#include "services/decode/overlap/scheduled_experts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "services/decode/overlap/measure_experts.h"

namespace moestro::decode {

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
                .policy = options.policy}) {}

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
  first_output_.reserve(static_cast<size_t>(spec_.num_experts));
  host_plan_.experts.reserve(static_cast<size_t>(spec_.num_experts));
  host_plan_.routed.reserve(static_cast<size_t>(routed_rows));
  output_of_.resize(static_cast<size_t>(routed_rows));
  next_.resize(static_cast<size_t>(options_.max_rows));
  others_.reserve(static_cast<size_t>(routed_rows));
  foreseen_choices_.reserve(static_cast<size_t>(routed_rows));
  foreseen_.resize(static_cast<size_t>(options_.prefetch_layers));
  for (std::vector<int32_t>& experts : foreseen_) experts.reserve(static_cast<size_t>(routed_rows));
  return absl::OkStatus();
}

ExpertCounts ScheduledExperts::counts() const {
  return {hits_, misses_, on_device_, loads_, loads_ahead_, foreseen_hits_, planned_seconds_, measured_seconds_};
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
  hits_ = misses_ = on_device_ = loads_ = loads_ahead_ = foreseen_hits_ = 0;
  planned_seconds_ = measured_seconds_ = 0;
}

absl::Status ScheduledExperts::Load(std::span<const experts::ExpertPlanner::Load> loads) {
  for (const experts::ExpertPlanner::Load& load : loads) {
    MOE_RETURN_IF_ERROR(experts_->Load(spec_.MoeLayer(load.moe_layer), load.expert, load.slot));
  }
  return absl::OkStatus();
}

experts::PassRouting ScheduledExperts::RoutingOf(int64_t layer, int64_t count, const engine::ExpertIo& rows) {
  const auto choices = std::span(rows.choices, static_cast<size_t>(count * spec_.experts_per_token));
  if (gates_ == nullptr) return {.choices = choices};
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
  return {.choices = choices, .others = others_, .foreseen = foreseen_};
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
    if (!plan.host.empty()) cpu_.RunOutputs(layer, host_plan_, rows.x, experts_->outputs());
    MOE_RETURN_IF_ERROR(experts_->Wait());
    Add(count, rows);
  }
  measured_seconds_ += device_.Now() - begin;
  planned_seconds_ += plan.makespan();
  for (const experts::ExpertUse& use : pass.uses) ++(use.held() ? hits_ : misses_);
  on_device_ += std::ssize(plan.device);
  loads_ += std::ssize(pass.loads) + std::ssize(pass.behind);
  loads_ahead_ += pass.ahead;
  foreseen_hits_ += pass.foreseen_hits;
  return absl::OkStatus();
}

void ScheduledExperts::Arrange(const experts::ExpertPlanner::Pass& pass, int64_t count, const engine::ExpertIo& rows) {
  const int64_t per_row = spec_.experts_per_token, hidden = spec_.hidden_size;
  const experts::SchedulePlan& plan = pass.plan;
  // Its experts are the pass's uses, in the same order.
  plan_.Sort(std::span(rows.choices, static_cast<size_t>(count * per_row)), per_row, spec_.num_experts);
  const auto rows_of = [&](int32_t place) -> const model::ExpertRows& {
    return plan_.experts[static_cast<size_t>(place)];
  };
  first_device_output_ = std::ssize(plan_.routed);
  for (const int32_t place : plan.device) first_device_output_ -= rows_of(place).count;

  first_output_.assign(plan_.experts.size(), -1);
  tasks_.clear();
  device_rows_ = 0;
  const size_t held = plan.device.size() - plan.loads.size();
  for (size_t i = 0; i < plan.device.size(); ++i) {
    const int32_t place = plan.device[i];
    const model::ExpertRows& expert = rows_of(place);
    first_output_[static_cast<size_t>(place)] = first_device_output_ + device_rows_;
    for (int64_t row = expert.begin; row < expert.begin + expert.count; ++row, ++device_rows_) {
      std::memcpy(experts_->inputs() + device_rows_ * hidden,
                  rows.x + plan_.routed[static_cast<size_t>(row)].row * hidden,
                  static_cast<size_t>(hidden) * sizeof(uint16_t));
    }
    const bool is_loading = i >= held;
    const int64_t slot = is_loading ? pass.loads[i - held].slot : pass.uses[static_cast<size_t>(place)].slot;
    tasks_.push_back({slot, expert.count, is_loading});
  }

  host_plan_.experts.clear();
  host_plan_.routed.clear();
  std::fill_n(next_.begin(), count, 0);
  for (size_t place = 0; place < plan_.experts.size(); ++place) {
    const model::ExpertRows& expert = plan_.experts[place];
    const auto routed =
        std::span(plan_.routed).subspan(static_cast<size_t>(expert.begin), static_cast<size_t>(expert.count));
    if (first_output_[place] < 0) {
      first_output_[place] = std::ssize(host_plan_.routed);
      host_plan_.experts.push_back({expert.expert, first_output_[place], expert.count});
      host_plan_.routed.insert(host_plan_.routed.end(), routed.begin(), routed.end());
    }
    int64_t output = first_output_[place];
    for (const model::RoutedRow& row : routed) {
      output_of_[static_cast<size_t>(row.row * per_row + next_[static_cast<size_t>(row.row)]++)] = output++;
    }
  }
}

absl::Status ScheduledExperts::Launch(const experts::ExpertPlanner::Pass& pass) {
  MOE_RETURN_IF_ERROR(experts_->CopyInputs(device_rows_));
  MOE_RETURN_IF_ERROR(Load(pass.loads));
  MOE_RETURN_IF_ERROR(Load(pass.behind));
  return experts_->Run(tasks_, first_device_output_);
}

void ScheduledExperts::Add(int64_t count, const engine::ExpertIo& rows) {
  const int64_t per_row = spec_.experts_per_token, hidden = spec_.hidden_size;
  const auto add = [&](int64_t row, int) {
    float* const sums = rows.sums + row * hidden;
    std::fill_n(sums, hidden, 0.0f);
    for (int64_t i = row * per_row; i < (row + 1) * per_row; ++i) {
      kernels_.axpy(rows.choices[i].weight, experts_->outputs() + output_of_[static_cast<size_t>(i)] * hidden, hidden,
                    sums);
    }
  };
  if (count == 1) return add(0, 0);
  const ScopedAffinity pinned = pool_.PinCaller();
  pool_.Run(count, add);
}

}  // namespace moestro::decode
