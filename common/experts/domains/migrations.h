// Where experts' weights should lie for the loads that are foreseen, and which of them move there before a layer
// begins: TriMoE, section 4.3.
//
// Wanted: the experts of most rows on the device, as many as it has slots for; the next ones striped, for the CPU or
// the device's loads; the others localised on DIMMs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/experts/domains/schedulers.h"

namespace moestro::experts {

struct Migration {
  enum class Kind : int8_t {
    kPrefetch,  // over the bus, into a slot of the device
    kLocalise,  // from all DIMMs to one
    kStripe,    // from one to all
    kMove,      // from one to another: rebalancing
  };
  Kind kind = Kind::kPrefetch;
  int8_t from = ExpertPlace::kStriped;  // DIMMs
  int8_t to = ExpertPlace::kStriped;
  int32_t expert = 0;
  double benefit = 0;  // seconds
};

class MigrationPlanner {  // not thread-safe: keeps its memory
 public:
  struct Options {
    int64_t experts = 0;
    int64_t slots = 0;  // of a layer, 0 to kMostSlots
    DomainsUsed used;
    bool prefetch = false;
    bool relayout = false;  // localise, stripe and move
  };
  // The costs must outlive it.
  MigrationPlanner(const Options& options, const DomainCosts& costs);

  // kGpu: in a slot, kCpu: striped, `striped` of them, kNear: localised; by expert. Of equal loads the lower id first.
  void Wanted(std::span<const float> loads, int64_t striped, std::span<Domain> wanted);
  // The initial layout, from loads of a recording: all as wanted, localised experts evenly over the DIMMs.
  void Place(std::span<const float> loads, int64_t striped, std::span<ExpertPlace> places);

  // Ranks what is not as wanted by benefit, and carries out what pays. DIMMs' links and the bus work at the same time,
  // each on one thing after the other, beside attention and dense layers of `window` seconds. What takes longer than
  // the window delays the layer, so a migration must bring more than that.
  //
  // The benefit is what the expert takes in `planned`, the plan for the foreseen loads without migrations, less what it
  // takes where it is wanted. Seconds of a DIMM count as shared by all DIMMs, as other experts can go to the others. Of
  // a move the benefit is what the busiest DIMM gets done earlier. The makespan itself is no measure: a refined plan's
  // domains end nearly together, so no single expert shortens it.
  //
  // `loads` may be fractions; they count as whole rows.
  std::span<const Migration> Migrate(std::span<const float> loads, int64_t striped, std::span<const Domain> planned,
                                     double window, std::span<ExpertPlace> places);
  // Seconds by which the last ones exceeded the window.
  double exposed() const { return exposed_; }

 private:
  double Near(int32_t rows) const;  // of a localised one, on its DIMM
  // Of an expert in a domain; those of a DIMM shared by all.
  double Shared(int32_t rows, ExpertPlace place, Domain domain) const;

  void FindPrefetches(std::span<const Domain> planned, std::span<const ExpertPlace> places);
  void FindRelayouts(std::span<const Domain> planned, std::span<const ExpertPlace> places);
  void FindMoves();
  int64_t IdlestDimm() const;
  bool Occupy(const Migration& migration, ExpertPlace place, double window);  // false: it does not pay
  void CarryOut(const Migration& migration, std::span<const float> loads, std::span<ExpertPlace> places) const;

  const Options options_;
  const DomainCosts& costs_;
  double exposed_ = 0;
  std::vector<Migration> migrations_;
  // By expert.
  std::vector<int32_t> order_;  // by falling load
  std::vector<int32_t> rows_;
  std::vector<Domain> wanted_;
  std::vector<int8_t> lies_;  // DIMM of an expert that a DIMM will compute, or kStriped
  std::vector<bool> moves_;   // goes to another DIMM
  // By DIMM.
  std::vector<double> near_;      // foreseen seconds
  std::vector<double> links_;     // seconds of migrations
  std::vector<double> occupied_;  // the same with one more
  double bus_ = 0;
};

}  // namespace moestro::experts
