// Which domain computes each expert of a layer, and when the domains end: TriMoE, Eq. 5 to 7.
//
// Device and CPU compute one expert after the other. Each DIMM's processor computes experts that lie on it, and waits
// while the device or the CPU reads from its DIMM.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/experts/domains/costs.h"

namespace moestro::experts {

enum class Domain : int8_t {
  kNone,  // no row uses the expert
  kGpu,
  kCpu,
  kNear,  // the DIMM on which it lies
};

// A layer in a pass.
struct DomainState {
  const DomainCosts& costs;
  std::span<const int32_t> rows;        // by expert; 0: no row uses it
  std::span<const ExpertPlace> places;  // by expert
};

struct DomainPlan {
  std::vector<Domain> domains;  // by expert
  // Seconds since the layer's experts began; 0 without work.
  double gpu_end = 0;
  double cpu_end = 0;
  std::vector<double> dimm_ends;  // with what was read from the DIMM

  double near_end() const { return dimm_ends.empty() ? 0 : *std::max_element(dimm_ends.begin(), dimm_ends.end()); }
  double makespan() const { return std::max({gpu_end, cpu_end, near_end()}); }
};

// Computes the plan's ends from its domains.
void SetEnds(const DomainState& state, DomainPlan& plan);

// Seconds in which the domains compute, without waiting for weights.
struct ComputeSeconds {
  double gpu = 0;
  double cpu = 0;
  double near = 0;  // of all DIMMs' processors together
};
ComputeSeconds ComputeSecondsOf(const DomainState& state, const DomainPlan& plan);

// The ends of a plan in the making. Sums, so what is removed leaves rounding errors.
class DomainEnds {  // not thread-safe
 public:
  explicit DomainEnds(int64_t dimms) : dimms_(static_cast<size_t>(dimms)) {}
  // No expert has a domain.
  void Clear(const DomainCosts& costs);
  // An expert of these seconds at this place goes from one domain to another; kNone: to none.
  void Move(const ExpertSeconds& seconds, ExpertPlace place, Domain from, Domain to);
  double MakespanAfter(const ExpertSeconds& seconds, ExpertPlace place, Domain from, Domain to) const;

  double gpu() const { return gpu_; }
  double cpu() const { return cpu_; }
  double dimm(int64_t index) const { return dimms_[static_cast<size_t>(index)] + striped_; }
  int64_t LatestDimm() const { return std::max_element(dimms_.begin(), dimms_.end()) - dimms_.begin(); }
  double Makespan() const { return std::max({gpu_, cpu_, dimm(LatestDimm())}); }

 private:
  struct Change {
    double gpu = 0;
    double cpu = 0;
    double striped = 0;  // of every DIMM
    double dimm = 0;     // of the expert's
  };
  void Count(const ExpertSeconds& seconds, ExpertPlace place, Domain domain, double sign, Change& change) const;
  Change ChangeOf(const ExpertSeconds& seconds, ExpertPlace place, Domain from, Domain to) const;

  const DomainCosts* costs_ = nullptr;
  double gpu_ = 0;
  double cpu_ = 0;
  double striped_ = 0;         // what reads of striped experts take from every DIMM
  std::vector<double> dimms_;  // what else each DIMM does
};

}  // namespace moestro::experts
