// The systems of TriMoE's evaluation, simulated on its machine: layers of decode steps, pass by pass, by the planner
// that a role would have (common/experts/domains).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "common/experts/domains/domain_planner.h"
#include "services/cli/paper/trimoe/workload.h"
#include "services/cli/plan/hardware_file.h"

namespace moestro::cli {

struct TriMoeSystem {
  const char* name;
  experts::DomainSchedule schedule;
  bool prefetch;  // Klotski and KTransformers prefetch in the paper; of MoNDE it says nothing
  bool relayout;
};
inline constexpr TriMoeSystem kKlotski = {"Klotski", experts::DomainSchedule::kKlotski, true, false};
inline constexpr TriMoeSystem kKTransformersBaseline = {"En-KTransformers",
                                                        experts::DomainSchedule::kEnhancedKTransformers, true, false};
inline constexpr TriMoeSystem kMonde = {"MoNDE", experts::DomainSchedule::kMonde, false, false};
inline constexpr TriMoeSystem kTriMoe = {"TriMoE", experts::DomainSchedule::kTriDomain, true, true};
inline constexpr TriMoeSystem kBaselines[] = {kKlotski, kKTransformersBaseline, kMonde};
// Fig. 8, one part after the other, the last of which is TriMoE.
inline constexpr TriMoeSystem kGpuNdp = kMonde;
inline constexpr TriMoeSystem kWithCpu = {"+ CPU", experts::DomainSchedule::kGreedy, false, false};
inline constexpr TriMoeSystem kWithRefinement = {"+ refinement", experts::DomainSchedule::kTriDomain, false, false};

// Of a layer with experts, on average over the passes behind the profiled ones.
struct LayerTimes {
  double dense = 0;    // DenseSeconds
  double exposed = 0;  // of migrations that took longer
  double experts = 0;  // makespans
  // Shares of the last two in which a domain computes, without waiting for weights.
  double gpu_share = 0;
  double cpu_share = 0;
  double near_share = 0;  // of all DIMMs
  double migrations = 0;
  double foreseen_share = 0;  // of experts that are wanted where averages of loads want them

  double moe() const { return exposed + experts; }
};
LayerTimes Simulate(const experts::DomainRates& rates, experts::Contention contention, const weights::ModelSpec& spec,
                    const Loads& loads, const TriMoeSystem& system, double dense);

// Runs what figures ask for, once each.
class TriMoeStudy {
 public:
  // The machine must outlive it.
  TriMoeStudy(const NearDataMachine& machine, experts::Contention contention)
      : machine_(machine), contention_(contention) {}

  const NearDataMachine& machine() const { return machine_; }
  experts::Contention contention() const { return contention_; }
  const RoutedLoads& LoadsOf(const TriMoeModel& model);
  const weights::ModelSpec& SpecOf(const TriMoeModel& model);
  // The first layer with experts.
  double Dense(const TriMoeModel& model, int64_t batch);
  const LayerTimes& Of(const TriMoeModel& model, int64_t batch, const TriMoeSystem& system);
  // On other rates.
  LayerTimes With(const experts::DomainRates& rates, const TriMoeModel& model, int64_t batch,
                  const TriMoeSystem& system);
  // The baseline whose experts take least.
  const TriMoeSystem& BestBaseline(const TriMoeModel& model, int64_t batch);
  // Experts of the best baseline over TriMoE's.
  double Speedup(const TriMoeModel& model, int64_t batch);

 private:
  const NearDataMachine& machine_;
  const experts::Contention contention_;
  std::map<std::string, RoutedLoads> loads_;
  std::map<std::string, weights::ModelSpec> specs_;
  std::map<std::tuple<std::string, int64_t, std::string>, LayerTimes> times_;
};

}  // namespace moestro::cli
