// Decides which domain computes each expert of a layer: TriMoE's scheduler (section 4.2) and the systems that it is
// compared with (5.1.2), all by the costs of Eq. 1 to 4. Pure: plans depend on the state alone, not on the clock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/experts/domains/plan.h"

namespace moestro::experts {

enum class DomainSchedule {
  kTriDomain,  // greedy, then refined
  kGreedy,     // each expert where it takes least
  kKlotski,    // all on the device. Loads behind the computing of held experts, as its pipeline makes them, would save
               // at most what these take
  kEnhancedKTransformers,  // device and CPU: experts of many rows are loaded if that ends the layer earlier
  kMonde,                  // device and DIMMs: likewise, and what no DIMM has goes to the device
};

// Which domains, beside the device, the schedule uses.
struct DomainsUsed {
  bool cpu = false;
  bool near = false;
};
DomainsUsed DomainsOf(DomainSchedule schedule);

class DomainScheduler {  // not thread-safe: keeps its memory
 public:
  virtual ~DomainScheduler() = default;
  // Replaces the plan. Allocates nothing after the first plan for as many experts and DIMMs.
  virtual void Plan(const DomainState& state, DomainPlan& plan) = 0;
};

// For layers of up to so many experts.
std::unique_ptr<DomainScheduler> NewDomainScheduler(DomainSchedule schedule, int64_t num_experts, int64_t dimms);

// Greedy: each expert goes where it takes least. Of equals a DIMM before the CPU before the device, so that memory and
// bus stay free.
//
// Refinement: the dearest expert of the domain that ends last, where each DIMM counts as one, goes to another domain,
// the one with which the layer ends first; of equals to the one that it delays least. That repeats while the layer
// ends earlier, at most 4 times the number of experts: the paper has a limit, but no number.
class TriDomainScheduler final : public DomainScheduler {
 public:
  TriDomainScheduler(int64_t num_experts, int64_t dimms, bool refine);
  void Plan(const DomainState& state, DomainPlan& plan) override;

 private:
  // The dearest expert of what ends last; -1: nothing was given to it.
  int64_t Candidate(const DomainState& state, const DomainPlan& plan) const;
  bool Improve(const DomainState& state, DomainPlan& plan);

  const bool refine_;
  std::vector<ExpertSeconds> seconds_;  // by expert
  DomainEnds ends_;
};

// Held experts on the device. Of the others those of most rows too, as many as make the layer end first, and the rest
// on `other`. Klotski has no other domain, MoNDE the DIMMs, KTransformers with loads the CPU.
class MostRowsToGpu final : public DomainScheduler {
 public:
  MostRowsToGpu(int64_t num_experts, int64_t dimms, Domain other);
  void Plan(const DomainState& state, DomainPlan& plan) override;

 private:
  const Domain other_;
  std::vector<ExpertSeconds> seconds_;  // by expert
  std::vector<int32_t> movable_;        // experts that `other` could compute, by falling rows
  DomainEnds ends_;
};

}  // namespace moestro::experts
