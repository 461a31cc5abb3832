#include "services/cli/paper/hybrimoe/expert_systems.h"

#include <algorithm>
#include <vector>

#include "common/checkpoint/config.h"

namespace moestro::cli {
namespace {

constexpr double kBytesAWeight = 4.5 / 8;  // Q4_K
constexpr int64_t kWarmUpTokens = 64;
constexpr int64_t kTokens = 96;
// Assumed: routers foresee as those of the demo model (loadtest/traces), 69, 59 and 51 % of a token's experts from one,
// two and three layers before. With the popularity that the paper's hits give, this error makes it 66 to 68, 56 to 60
// and 49 to 56 %.
constexpr double kPredictionError = 1.0;
constexpr int64_t kMostRows = 2048;
constexpr int kHalvings = 14;
constexpr double kMostPopularity = 8;

experts::SyntheticRouting RoutingOf(const weights::ModelSpec& spec, double popularity) {
  return {.layers = spec.num_moe_layers(),
          .experts = spec.num_experts,
          .per_token = spec.experts_per_token,
          .popularity = popularity,
          .predicted_layers = model::kMaxPredictedLayers,
          .prediction_error = kPredictionError,
          .sequences = 1,
          .tokens = kWarmUpTokens + kTokens};
}

int64_t SlotsOf(const weights::ModelSpec& spec, double ratio) {
  return static_cast<int64_t>(ratio * static_cast<double>(spec.num_experts));
}

}  // namespace

ExpertReplays::ExpertReplays(const roofline::Machine& machine, const std::string& model, double popularity)
    : machine_(machine),
      spec_(checkpoint::PublishedModel(model)),
      seconds_(machine, spec_, kBytesAWeight),
      popularity_(popularity) {}

experts::ExpertCosts ExpertReplays::Costs(Stage stage, int64_t rows) const {
  const LayerSeconds qwen2(machine_, checkpoint::PublishedModel("qwen2-57b"), kBytesAWeight);
  const double larger = seconds_.expert_weights() / qwen2.expert_weights();
  std::vector<double> host;
  for (int64_t n = 1; n <= kMostRows; n *= 2) {
    const double seconds = stage == Stage::kPrompt ? static_cast<double>(n) * rates_.seconds_a_row : rates_.seconds;
    host.push_back(larger * seconds);
  }
  experts::ExpertCosts costs = seconds_.Costs(rows);
  costs.host = experts::SecondsByRows(host);
  return costs;
}

const ExpertReplays::Recording& ExpertReplays::RecordingOf(Stage stage, int64_t rows) {
  const auto [found, is_new] = recordings_.try_emplace(stage == Stage::kPrompt ? rows : 0);
  if (!is_new) return found->second;
  experts::SyntheticRouting routing = RoutingOf(spec_, popularity_);
  if (stage == Stage::kPrompt) {
    routing.sequences = 2;
    routing.prompt_tokens = rows;
  }
  experts::SyntheticTrace trace(routing);
  found->second.model = trace.model();
  found->second.passes.resize(stage == Stage::kPrompt ? 2 : static_cast<size_t>(routing.tokens));
  for (model::RoutingStep& step : found->second.passes) trace.Next(step);
  return found->second;
}

Replayed ExpertReplays::Run(const ExpertSystem& system, Stage stage, int64_t rows, double ratio) {
  const Recording& recording = RecordingOf(stage, rows);
  const bool loads = system.schedule != experts::Schedule::kFixed || system.prefetch_layers > 0 ||
                     system.policy != experts::Policy::kFirstLayers;
  experts::ExpertPlanner planner({.moe_layers = spec_.num_moe_layers(),
                                  .num_experts = spec_.num_experts,
                                  .slots = SlotsOf(spec_, ratio),
                                  .most_loads = loads ? spec_.num_experts : 0,
                                  .schedule = system.schedule,
                                  .policy = system.policy});
  experts::ExpertReplay replay(recording.model, system.prefetch_layers, planner);
  const size_t first = stage == Stage::kPrompt ? 1 : kWarmUpTokens;
  const experts::ExpertCosts costs = Costs(stage, rows);
  experts::ExpertCosts free_loads = costs;
  free_loads.load = 0;
  planner.SetCosts(free_loads);
  experts::CacheCounts before;
  for (size_t pass = 0; pass < recording.passes.size(); ++pass) {
    if (pass == first) {
      before = replay.counts();
      planner.SetCosts(costs);
    }
    replay.Add(recording.passes[pass]);
  }
  const experts::CacheCounts& after = replay.counts();
  const auto hits = static_cast<double>(after.hits - before.hits);
  Replayed result = {.seconds = (after.seconds - before.seconds) / static_cast<double>(recording.passes.size() - first),
                     .hit_rate = hits / (hits + static_cast<double>(after.misses - before.misses))};
  if (system.host_layers) {
    const int64_t on_host = spec_.num_moe_layers() - planner.kept() / spec_.num_experts;
    const auto count = static_cast<double>(rows);
    const double more = seconds_.Rest(machine_.host, count) - seconds_.Rest(machine_.device, count);
    result.seconds += static_cast<double>(on_host) * more;
  }
  return result;
}

double ExpertReplays::HitRate(const std::string& model, double popularity, experts::Policy policy, double ratio) {
  const weights::ModelSpec spec = checkpoint::PublishedModel(model);
  experts::SyntheticRouting routing = RoutingOf(spec, popularity);
  routing.predicted_layers = 0;
  experts::ExpertPlanner planner({.moe_layers = spec.num_moe_layers(),
                                  .num_experts = spec.num_experts,
                                  .slots = SlotsOf(spec, ratio),
                                  .most_loads = spec.experts_per_token,
                                  .schedule = experts::Schedule::kOnDemand,
                                  .policy = policy});
  experts::SyntheticTrace trace(routing);
  experts::ExpertReplay replay(trace.model(), 0, planner);
  experts::CacheCounts before;
  model::RoutingStep step;
  for (int64_t pass = 0; trace.Next(step); ++pass) {
    if (pass == kWarmUpTokens) before = replay.counts();
    replay.Add(step);
  }
  const auto hits = static_cast<double>(replay.counts().hits - before.hits);
  return hits / (hits + static_cast<double>(replay.counts().misses - before.misses));
}

double ExpertReplays::FitPopularity(const std::string& model, double ratio, double hit_rate) {
  double least = 0, most = kMostPopularity;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (least + most) / 2;
    (HitRate(model, middle, experts::Policy::kLru, ratio) < hit_rate ? least : most) = middle;
  }
  return (least + most) / 2;
}

}  // namespace moestro::cli
