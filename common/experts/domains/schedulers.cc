#include "common/experts/domains/schedulers.h"

#include <cmath>
#include <tuple>

namespace moestro::experts {
namespace {

// Smaller gains are rounding errors of sums.
constexpr double kLeastMakespanGain = 1e-12;

double On(const ExpertSeconds& seconds, Domain domain) {
  return domain == Domain::kGpu ? seconds.gpu : domain == Domain::kCpu ? seconds.cpu : seconds.near;
}

Domain Cheapest(const ExpertSeconds& seconds) {
  if (seconds.near <= std::min(seconds.cpu, seconds.gpu)) return Domain::kNear;
  return seconds.cpu <= seconds.gpu ? Domain::kCpu : Domain::kGpu;
}

// Seconds of all experts that have rows. The plan has no domains.
void Begin(const DomainState& state, DomainPlan& plan, std::vector<ExpertSeconds>& seconds, DomainEnds& ends) {
  plan.domains.assign(state.rows.size(), Domain::kNone);
  seconds.resize(state.rows.size());
  for (size_t i = 0; i < state.rows.size(); ++i) {
    if (state.rows[i] > 0) seconds[i] = SecondsOf(state.costs, state.rows[i], state.places[i]);
  }
  ends.Clear(state.costs);
}

}  // namespace

DomainsUsed DomainsOf(DomainSchedule schedule) {
  switch (schedule) {
    case DomainSchedule::kTriDomain:
    case DomainSchedule::kGreedy:
      return {.cpu = true, .near = true};
    case DomainSchedule::kEnhancedKTransformers:
      return {.cpu = true};
    case DomainSchedule::kMonde:
      return {.near = true};
    case DomainSchedule::kKlotski:
      break;
  }
  return {};
}

std::unique_ptr<DomainScheduler> NewDomainScheduler(DomainSchedule schedule, int64_t num_experts, int64_t dimms) {
  switch (schedule) {
    case DomainSchedule::kTriDomain:
      return std::make_unique<TriDomainScheduler>(num_experts, dimms, /*refine=*/true);
    case DomainSchedule::kGreedy:
      return std::make_unique<TriDomainScheduler>(num_experts, dimms, /*refine=*/false);
    case DomainSchedule::kKlotski:
      return std::make_unique<MostRowsToGpu>(num_experts, dimms, Domain::kGpu);
    case DomainSchedule::kEnhancedKTransformers:
      return std::make_unique<MostRowsToGpu>(num_experts, dimms, Domain::kCpu);
    case DomainSchedule::kMonde:
      return std::make_unique<MostRowsToGpu>(num_experts, dimms, Domain::kNear);
  }
  return nullptr;
}

TriDomainScheduler::TriDomainScheduler(int64_t num_experts, int64_t dimms, bool refine)
    : refine_(refine), ends_(dimms) {
  seconds_.reserve(static_cast<size_t>(num_experts));
}

void TriDomainScheduler::Plan(const DomainState& state, DomainPlan& plan) {
  Begin(state, plan, seconds_, ends_);
  for (size_t i = 0; i < state.rows.size(); ++i) {
    if (state.rows[i] == 0) continue;
    plan.domains[i] = Cheapest(seconds_[i]);
    ends_.Move(seconds_[i], state.places[i], Domain::kNone, plan.domains[i]);
  }
  if (refine_) {
    for (size_t moves = 0; moves < 4 * state.rows.size() && Improve(state, plan); ++moves) {
    }
  }
  SetEnds(state, plan);
}

int64_t TriDomainScheduler::Candidate(const DomainState& state, const DomainPlan& plan) const {
  const int64_t dimm = ends_.LatestDimm();
  Domain last = ends_.gpu() >= ends_.cpu() ? Domain::kGpu : Domain::kCpu;
  if (ends_.dimm(dimm) > std::max(ends_.gpu(), ends_.cpu())) last = Domain::kNear;
  int64_t dearest = -1;
  for (size_t i = 0; i < plan.domains.size(); ++i) {
    if (plan.domains[i] != last || (last == Domain::kNear && state.places[i].dimm != dimm)) continue;
    if (dearest < 0 || On(seconds_[i], last) > On(seconds_[static_cast<size_t>(dearest)], last)) {
      dearest = static_cast<int64_t>(i);
    }
  }
  return dearest;
}

bool TriDomainScheduler::Improve(const DomainState& state, DomainPlan& plan) {
  const int64_t candidate = Candidate(state, plan);
  if (candidate < 0) return false;
  const auto i = static_cast<size_t>(candidate);
  const ExpertPlace place = state.places[i];
  const Domain from = plan.domains[i];
  Domain best = Domain::kNone;
  std::pair<double, double> least;  // when the layer ends, and what the expert takes there
  for (const Domain to : {Domain::kNear, Domain::kCpu, Domain::kGpu}) {
    if (to == from || std::isinf(On(seconds_[i], to))) continue;
    const std::pair after = {ends_.MakespanAfter(seconds_[i], place, from, to), On(seconds_[i], to)};
    if (best == Domain::kNone || after < least) std::tie(best, least) = std::pair(to, after);
  }
  if (least.first >= ends_.Makespan() * (1 - kLeastMakespanGain)) return false;
  ends_.Move(seconds_[i], place, from, best);
  plan.domains[i] = best;
  return true;
}

MostRowsToGpu::MostRowsToGpu(int64_t num_experts, int64_t dimms, Domain other) : other_(other), ends_(dimms) {
  seconds_.reserve(static_cast<size_t>(num_experts));
  movable_.reserve(static_cast<size_t>(num_experts));
}

void MostRowsToGpu::Plan(const DomainState& state, DomainPlan& plan) {
  Begin(state, plan, seconds_, ends_);
  movable_.clear();
  for (size_t i = 0; i < state.rows.size(); ++i) {
    if (state.rows[i] == 0) continue;
    const bool movable = other_ != Domain::kGpu && !state.places[i].held() && std::isfinite(On(seconds_[i], other_));
    plan.domains[i] = movable ? other_ : Domain::kGpu;
    if (movable) movable_.push_back(static_cast<int32_t>(i));
    ends_.Move(seconds_[i], state.places[i], Domain::kNone, plan.domains[i]);
  }
  const auto rows = [&](int32_t expert) { return state.rows[static_cast<size_t>(expert)]; };
  std::ranges::sort(movable_, {}, [&](int32_t expert) { return std::pair(-rows(expert), expert); });
  size_t loads = 0, best = 0;
  double least = ends_.Makespan();
  for (const int32_t expert : movable_) {
    const auto i = static_cast<size_t>(expert);
    ends_.Move(seconds_[i], state.places[i], other_, Domain::kGpu);
    ++loads;
    if (ends_.Makespan() < least * (1 - kLeastMakespanGain)) {
      least = ends_.Makespan();
      best = loads;
    }
  }
  for (size_t n = 0; n < best; ++n) plan.domains[static_cast<size_t>(movable_[n])] = Domain::kGpu;
  SetEnds(state, plan);
}

}  // namespace moestro::experts
