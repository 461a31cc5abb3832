#include "services/cli/paper/trimoe/systems.h"

#include "common/roofline/work_count.h"

namespace moestro::cli {

LayerTimes Simulate(const experts::DomainRates& rates, experts::Contention contention, const weights::ModelSpec& spec,
                    const Loads& loads, const TriMoeSystem& system, double dense) {
  const roofline::WeightCount expert = roofline::CountModel(spec, DType::kBF16).layers.back().expert;
  const experts::DomainCosts costs = experts::CostsOf(rates, expert.elements, expert.bytes, contention);
  const auto layers = std::ssize(loads.front());
  experts::DomainPlanner planner({.layers = layers,
                                  .experts = spec.num_experts,
                                  .slots = SlotsOf(spec),
                                  .schedule = system.schedule,
                                  .prefetch = system.prefetch,
                                  .relayout = system.relayout},
                                 costs);
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<std::span<const int32_t>> recorded;
    for (int64_t pass = 0; pass < kProfiledPasses; ++pass) {
      recorded.emplace_back(loads[static_cast<size_t>(pass)][static_cast<size_t>(layer)]);
    }
    planner.Place(layer, recorded);
  }
  LayerTimes times{.dense = dense};
  experts::ComputeSeconds computed;
  double passes = 0, foreseen = 0;
  for (size_t pass = kProfiledPasses; pass < loads.size(); ++pass) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      const experts::DomainPlanner::Pass planned = planner.Next(layer, loads[pass][static_cast<size_t>(layer)], dense);
      const experts::ComputeSeconds seconds = experts::ComputeSecondsOf(planned.state, planned.plan);
      computed.gpu += seconds.gpu;
      computed.cpu += seconds.cpu;
      computed.near += seconds.near;
      times.exposed += planned.exposed;
      times.experts += planned.plan.makespan();
      times.migrations += static_cast<double>(planned.migrations.size());
      foreseen += static_cast<double>(planned.foreseen);
      ++passes;
    }
  }
  times.gpu_share = computed.gpu / times.moe();
  times.cpu_share = computed.cpu / times.moe();
  times.near_share = computed.near / static_cast<double>(rates.dimms) / times.moe();
  times.foreseen_share = foreseen / passes / static_cast<double>(spec.num_experts);
  for (double* sum : {&times.exposed, &times.experts, &times.migrations}) *sum /= passes;
  return times;
}

const weights::ModelSpec& TriMoeStudy::SpecOf(const TriMoeModel& model) {
  const auto found = specs_.find(model.name);
  if (found != specs_.end()) return found->second;
  return specs_.emplace(model.name, checkpoint::PublishedModel(model.name)).first->second;
}

const RoutedLoads& TriMoeStudy::LoadsOf(const TriMoeModel& model) {
  const auto found = loads_.find(model.name);
  return found != loads_.end() ? found->second : loads_.emplace(model.name, MakeLoads(model)).first->second;
}

double TriMoeStudy::Dense(const TriMoeModel& model, int64_t batch) {
  const weights::ModelSpec& spec = SpecOf(model);
  return DenseSeconds(machine_.rates, spec, spec.num_layers - 1, batch, kMeanContext);
}

LayerTimes TriMoeStudy::With(const experts::DomainRates& rates, const TriMoeModel& model, int64_t batch,
                             const TriMoeSystem& system) {
  return Simulate(rates, contention_, SpecOf(model), LoadsOf(model).batches.at(batch), system, Dense(model, batch));
}

const LayerTimes& TriMoeStudy::Of(const TriMoeModel& model, int64_t batch, const TriMoeSystem& system) {
  const std::tuple key = {std::string(model.name), batch, std::string(system.name)};
  const auto found = times_.find(key);
  return found != times_.end() ? found->second
                               : times_.emplace(key, With(machine_.rates, model, batch, system)).first->second;
}

const TriMoeSystem& TriMoeStudy::BestBaseline(const TriMoeModel& model, int64_t batch) {
  const TriMoeSystem* best = &kBaselines[0];
  for (const TriMoeSystem& baseline : kBaselines) {
    if (Of(model, batch, baseline).moe() < Of(model, batch, *best).moe()) best = &baseline;
  }
  return *best;
}

double TriMoeStudy::Speedup(const TriMoeModel& model, int64_t batch) {
  return Of(model, batch, BestBaseline(model, batch)).moe() / Of(model, batch, kTriMoe).moe();
}

}  // namespace moestro::cli
