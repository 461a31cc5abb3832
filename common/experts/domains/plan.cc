#include "common/experts/domains/plan.h"

#include <utility>

namespace moestro::experts {

void SetEnds(const DomainState& state, DomainPlan& plan) {
  const DomainCosts& costs = state.costs;
  plan.gpu_end = plan.cpu_end = 0;
  plan.dimm_ends.assign(static_cast<size_t>(costs.dimms), 0);
  double striped = 0;
  for (size_t i = 0; i < plan.domains.size(); ++i) {
    const Domain domain = plan.domains[i];
    if (domain == Domain::kNone) continue;
    const ExpertPlace place = state.places[i];
    const ExpertSeconds seconds = SecondsOf(costs, state.rows[i], place);
    if (domain == Domain::kNear) {
      plan.dimm_ends[static_cast<size_t>(place.dimm)] += seconds.near;
      continue;
    }
    (domain == Domain::kGpu ? plan.gpu_end : plan.cpu_end) += domain == Domain::kGpu ? seconds.gpu : seconds.cpu;
    if (domain == Domain::kGpu && place.held()) continue;
    if (place.striped()) {
      striped += costs.busy_striped;
    } else {
      plan.dimm_ends[static_cast<size_t>(place.dimm)] += costs.busy_localised;
    }
  }
  for (double& end : plan.dimm_ends) end += striped;
}

ComputeSeconds ComputeSecondsOf(const DomainState& state, const DomainPlan& plan) {
  ComputeSeconds sum;
  for (size_t i = 0; i < plan.domains.size(); ++i) {
    if (plan.domains[i] == Domain::kGpu) sum.gpu += state.costs.gpu.At(state.rows[i]);
    if (plan.domains[i] == Domain::kCpu) sum.cpu += state.costs.cpu.At(state.rows[i]);
    if (plan.domains[i] == Domain::kNear) sum.near += state.costs.near.At(state.rows[i]);
  }
  return sum;
}

void DomainEnds::Clear(const DomainCosts& costs) {
  costs_ = &costs;
  gpu_ = cpu_ = striped_ = 0;
  std::fill(dimms_.begin(), dimms_.end(), 0);
}

void DomainEnds::Count(const ExpertSeconds& seconds, ExpertPlace place, Domain domain, double sign,
                       Change& change) const {
  if (domain == Domain::kNone) return;
  if (domain == Domain::kNear) {
    change.dimm += sign * seconds.near;
    return;
  }
  if (domain == Domain::kGpu) {
    change.gpu += sign * seconds.gpu;
    if (place.held()) return;
  } else {
    change.cpu += sign * seconds.cpu;
  }
  if (place.striped()) {
    change.striped += sign * costs_->busy_striped;
  } else {
    change.dimm += sign * costs_->busy_localised;
  }
}

DomainEnds::Change DomainEnds::ChangeOf(const ExpertSeconds& seconds, ExpertPlace place, Domain from, Domain to) const {
  Change change;
  Count(seconds, place, from, -1, change);
  Count(seconds, place, to, +1, change);
  return change;
}

void DomainEnds::Move(const ExpertSeconds& seconds, ExpertPlace place, Domain from, Domain to) {
  const Change change = ChangeOf(seconds, place, from, to);
  gpu_ += change.gpu;
  cpu_ += change.cpu;
  striped_ += change.striped;
  if (!place.striped()) dimms_[static_cast<size_t>(place.dimm)] += change.dimm;
}

double DomainEnds::MakespanAfter(const ExpertSeconds& seconds, ExpertPlace place, Domain from, Domain to) const {
  const Change change = ChangeOf(seconds, place, from, to);
  double latest = 0;
  for (size_t d = 0; d < dimms_.size(); ++d) {
    latest = std::max(latest, dimms_[d] + (std::cmp_equal(d, place.dimm) ? change.dimm : 0));
  }
  return std::max({gpu_ + change.gpu, cpu_ + change.cpu, latest + striped_ + change.striped});
}

}  // namespace moestro::experts
