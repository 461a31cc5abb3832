#include "services/decode/overlap/domain_experts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/experts/expert_planner.h"
#include "services/decode/overlap/measure_experts.h"

namespace moestro::decode {
namespace {

// Groups of outputs: the CPU's, the device's, then one for each processor near the data.
constexpr int64_t kHost = 0, kDevice = 1, kNear = 2;
// Of a layer: from these its first layout is made, as the paper makes it from a recording.
constexpr size_t kProfiledPasses = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<DomainExperts>> DomainExperts::Create(const weights::ModelSpec& spec,
                                                                     const model::ModelWeights& weights,
                                                                     const CpuKernels& kernels, WorkerPool& pool,
                                                                     CpuExperts& cpu, engine::DecodeCompute& compute,
                                                                     device::Device& device, const Options& options) {
  const int64_t layers = spec.num_moe_layers(), bytes = DeviceExpertBytes(spec, weights);
  const int64_t paid = experts::CacheSlots(options.budget_bytes, bytes, layers, spec.num_experts, options.most_loads);
  const int64_t slots = std::min(paid, experts::kMostSlots);
  if (slots == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d bytes do not hold an expert of %d bytes of each of %d layers, and %d that are being loaded",
                        options.budget_bytes, bytes, layers, options.most_loads));
  }
  std::unique_ptr<DomainExperts> experts(new DomainExperts(spec, weights, kernels, pool, cpu, device, options, slots));
  const DeviceExperts::Options sizes{.slots = experts->held_experts() + options.most_loads,
                                     .routed_rows = options.max_rows * spec.experts_per_token};
  MOE_ASSIGN_OR_RETURN(experts->experts_, DeviceExperts::Create(spec, weights, compute, device, sizes));
  experts->SetCosts({});
  return experts;
}

DomainExperts::DomainExperts(const weights::ModelSpec& spec, const model::ModelWeights& weights,
                             const CpuKernels& kernels, WorkerPool& pool, CpuExperts& cpu, const device::Device& device,
                             const Options& options, int64_t slots)
    : spec_(spec),
      cpu_(cpu),
      device_(device),
      options_(options),
      slots_(slots),
      expert_bytes_(DeviceExpertBytes(spec, weights)),
      near_(spec, weights, kernels,
            {.units = options.near_units,
             .bytes_per_second = options.near_bytes_per_second,
             .max_rows = options.max_rows}),
      outputs_(spec, kernels, pool, kNear + options.near_units, options.max_rows),
      row_counts_(static_cast<size_t>(spec.num_experts)),
      near_work_(static_cast<size_t>(options.near_units)) {
  tasks_.reserve(static_cast<size_t>(spec.num_experts));
  loads_.reserve(static_cast<size_t>(options.most_loads));
}

absl::Status DomainExperts::MeasureCosts(const device::Device& device) {
  const MeasuredExperts measured{spec_, cpu_, *experts_, held_experts() + options_.most_loads, options_.max_rows};
  MOE_ASSIGN_OR_RETURN(const experts::ExpertCosts costs, MeasureExpertCosts(measured, device));
  SetCosts(costs);
  return absl::OkStatus();
}

// All DIMMs are one memory here, so reads and migrations among them take nothing beside what computing takes.
void DomainExperts::SetCosts(const experts::ExpertCosts& costs) {
  costs_ = costs;
  totals_.Clear();
  PlaceAnew();
}

void DomainExperts::PlaceAnew() {
  const double rate = options_.near_bytes_per_second;
  const experts::DomainCosts of_domains{.dimms = options_.near_units,
                                        .gpu = costs_.device,
                                        .cpu = costs_.host,
                                        .near = costs_.host,
                                        .bus = costs_.load,
                                        .near_read = rate == 0 ? 0 : static_cast<double>(expert_bytes_) / rate};
  planner_ = std::make_unique<experts::DomainPlanner>(experts::DomainPlanner::Options{.layers = spec_.num_moe_layers(),
                                                                                      .experts = spec_.num_experts,
                                                                                      .slots = slots_,
                                                                                      .schedule = options_.schedule,
                                                                                      .prefetch = options_.prefetch,
                                                                                      .relayout = options_.relayout},
                                                      of_domains);
  profiles_.assign(static_cast<size_t>(spec_.num_moe_layers()), {});
}

absl::Status DomainExperts::Profile(int64_t layer, ExpertCounts& counts) {
  const int64_t moe_layer = spec_.MoeLayersBelow(layer);
  std::vector<std::vector<int32_t>>& passes = profiles_[static_cast<size_t>(moe_layer)];
  if (passes.size() == kProfiledPasses) return absl::OkStatus();
  passes.push_back(row_counts_);
  if (passes.size() < kProfiledPasses) return absl::OkStatus();
  planner_->Place(moe_layer, std::vector<std::span<const int32_t>>(passes.begin(), passes.end()));
  const std::span<const experts::ExpertPlace> places = planner_->places(moe_layer);
  for (int32_t expert = 0; expert < std::ssize(places); ++expert) {
    const experts::ExpertPlace place = places[static_cast<size_t>(expert)];
    if (!place.held()) continue;
    MOE_RETURN_IF_ERROR(experts_->Load(layer, expert, DeviceSlot(moe_layer, place.slot)));
    ++counts.loads_ahead;
  }
  return absl::OkStatus();
}

absl::Status DomainExperts::Run(int64_t layer, int64_t count, const engine::ExpertIo& rows) {
  if (count > options_.max_rows) return cpu_.Run(layer, count, rows);
  std::ranges::fill(row_counts_, 0);
  for (const model::ExpertRows& expert : outputs_.Sort(count, rows).experts) {
    row_counts_[static_cast<size_t>(expert.expert)] = static_cast<int32_t>(expert.count);
  }
  ExpertCounts counts;
  absl::Status status = Profile(layer, counts);
  const experts::DomainPlanner::Pass pass = planner_->Next(spec_.MoeLayersBelow(layer), row_counts_, costs_.between);
  if (status.ok()) status = RunPlanned(layer, pass, rows, counts);
  if (status.ok()) return status;
  // What the slots hold is not known any more.
  PlaceAnew();
  MOE_RETURN_IF_ERROR(experts_->Renew());
  return status;
}

absl::Status DomainExperts::RunPlanned(int64_t layer, const experts::DomainPlanner::Pass& pass,
                                       const engine::ExpertIo& rows, ExpertCounts& counts) {
  const int64_t moe_layer = spec_.MoeLayersBelow(layer), hidden = spec_.hidden_size;
  const double begin = device_.Now();
  counts.planned_seconds = pass.plan.makespan();
  for (const experts::Migration& migration : pass.migrations) {
    const int64_t slot = pass.state.places[static_cast<size_t>(migration.expert)].slot;
    if (migration.kind != experts::Migration::Kind::kPrefetch || slot < 0) continue;
    MOE_RETURN_IF_ERROR(experts_->Load(layer, migration.expert, DeviceSlot(moe_layer, slot)));
    ++counts.loads_ahead;
  }
  Divide(moe_layer, pass, counts);
  const model::ExpertPlan& on_device = outputs_.group(kDevice);
  if (!on_device.experts.empty()) {
    uint16_t* to = experts_->inputs();
    for (const model::RoutedRow& row : on_device.routed) {
      std::memcpy(to, rows.x + row.row * hidden, static_cast<size_t>(hidden) * sizeof(uint16_t));
      to += hidden;
    }
    MOE_RETURN_IF_ERROR(experts_->CopyInputs(std::ssize(on_device.routed)));
    for (int64_t i = 0; i < std::ssize(loads_); ++i) {
      MOE_RETURN_IF_ERROR(experts_->Load(layer, loads_[static_cast<size_t>(i)], held_experts() + i));
    }
    MOE_RETURN_IF_ERROR(experts_->Run(tasks_, outputs_.first_output(kDevice)));
  }
  const auto outputs_of = [&](int64_t group) { return experts_->outputs() + outputs_.first_output(group) * hidden; };
  for (int64_t unit = 0; unit < near_.units(); ++unit) {
    near_work_[static_cast<size_t>(unit)] = {&outputs_.group(kNear + unit), outputs_of(kNear + unit)};
  }
  near_.Start(layer, near_work_, rows.x);
  if (!outputs_.group(kHost).experts.empty()) cpu_.RunOutputs(layer, outputs_.group(kHost), rows.x, outputs_of(kHost));
  near_.Wait();
  if (!on_device.experts.empty()) MOE_RETURN_IF_ERROR(experts_->Wait());
  outputs_.Add(experts_->outputs(), rows);
  counts.on_device = std::ssize(on_device.experts);
  counts.loads = counts.loads_ahead + std::ssize(loads_);
  counts.measured_seconds = device_.Now() - begin;
  totals_.Add(counts);
  return absl::OkStatus();
}

void DomainExperts::Divide(int64_t moe_layer, const experts::DomainPlanner::Pass& pass, ExpertCounts& counts) {
  tasks_.clear();
  loads_.clear();
  const std::vector<model::ExpertRows>& sorted = outputs_.sorted().experts;
  const auto place_of = [&](size_t i) { return pass.state.places[static_cast<size_t>(sorted[i].expert)]; };
  const auto domain_of = [&](size_t i) { return pass.plan.domains[static_cast<size_t>(sorted[i].expert)]; };
  // The device computes what it holds first. What has no slot for its load is left to the CPU.
  for (const bool held : {true, false}) {
    for (size_t i = 0; i < sorted.size(); ++i) {
      const experts::ExpertPlace place = place_of(i);
      if (domain_of(i) != experts::Domain::kGpu || place.held() != held) continue;
      if (!held && std::ssize(loads_) == options_.most_loads) continue;
      const int64_t slot = held ? DeviceSlot(moe_layer, place.slot) : held_experts() + std::ssize(loads_);
      tasks_.push_back({slot, sorted[i].count, /*is_loading=*/!held});
      if (!held) loads_.push_back(sorted[i].expert);
      outputs_.Give(i, kDevice);
    }
  }
  for (size_t i = 0; i < sorted.size(); ++i) {
    ++(place_of(i).held() ? counts.hits : counts.misses);
    if (outputs_.IsGiven(i)) continue;
    const bool is_near = domain_of(i) == experts::Domain::kNear;
    counts.near_data += is_near ? 1 : 0;
    outputs_.Give(i, is_near ? kNear + place_of(i).dimm : kHost);
  }
  outputs_.Place();
}

}  // namespace moestro::decode
