#include "common/experts/domains/migrations.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace moestro::experts {
namespace {

// Of a DIMM's seconds: smaller gains are rounding errors.
constexpr double kLeastGain = 1e-9;

int32_t WholeRows(float load) { return static_cast<int32_t>(std::lround(load)); }

}  // namespace

MigrationPlanner::MigrationPlanner(const Options& options, const DomainCosts& costs)
    : options_(options), costs_(costs) {
  MOE_CHECK(options.slots >= 0 && options.slots <= kMostSlots);
  const auto experts = static_cast<size_t>(options.experts), dimms = static_cast<size_t>(costs.dimms);
  migrations_.reserve(experts + dimms);
  order_.resize(experts);
  rows_.resize(experts);
  wanted_.resize(experts);
  lies_.resize(experts);
  moves_.resize(experts);
  near_.resize(dimms);
  links_.resize(dimms);
  occupied_.resize(dimms);
}

double MigrationPlanner::Near(int32_t rows) const { return rows == 0 ? 0 : SecondsOf(costs_, rows, {.dimm = 0}).near; }

double MigrationPlanner::Shared(int32_t rows, ExpertPlace place, Domain domain) const {
  if (rows == 0 || domain == Domain::kNone) return 0;
  const ExpertSeconds seconds = SecondsOf(costs_, rows, place);
  if (domain == Domain::kNear) return seconds.near / static_cast<double>(costs_.dimms);
  return domain == Domain::kGpu ? seconds.gpu : seconds.cpu;
}

void MigrationPlanner::Wanted(std::span<const float> loads, int64_t striped, std::span<Domain> wanted) {
  MOE_CHECK(std::ssize(loads) == options_.experts && std::ssize(wanted) == options_.experts);
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::sort(order_, {}, [&](int32_t expert) { return std::pair(-loads[static_cast<size_t>(expert)], expert); });
  for (int64_t rank = 0; rank < options_.experts; ++rank) {
    Domain& domain = wanted[static_cast<size_t>(order_[static_cast<size_t>(rank)])];
    domain = rank < options_.slots ? Domain::kGpu : Domain::kNear;
    if (domain == Domain::kNear && (rank < options_.slots + striped || !options_.used.near)) domain = Domain::kCpu;
  }
}

void MigrationPlanner::Place(std::span<const float> loads, int64_t striped, std::span<ExpertPlace> places) {
  Wanted(loads, striped, wanted_);
  std::ranges::fill(near_, 0);
  int8_t slots = 0;
  for (const int32_t expert : order_) {  // the longest first, each to the DIMM that has the least
    const auto i = static_cast<size_t>(expert);
    places[i] = ExpertPlace();
    if (wanted_[i] == Domain::kGpu) places[i].slot = slots++;
    if (wanted_[i] != Domain::kNear) continue;
    const int64_t dimm = IdlestDimm();
    places[i].dimm = static_cast<int8_t>(dimm);
    // An expert without a row counts as one with one: it may get some.
    near_[static_cast<size_t>(dimm)] += Near(std::max(WholeRows(loads[i]), 1));
  }
}

int64_t MigrationPlanner::IdlestDimm() const { return std::ranges::min_element(near_) - near_.begin(); }

void MigrationPlanner::FindPrefetches(std::span<const Domain> planned, std::span<const ExpertPlace> places) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (wanted_[i] != Domain::kGpu || places[i].held()) continue;
    const double benefit =
        Shared(rows_[i], places[i], planned[i]) - Shared(rows_[i], {.dimm = places[i].dimm, .slot = 0}, Domain::kGpu);
    migrations_.push_back({.kind = Migration::Kind::kPrefetch,
                           .from = places[i].dimm,
                           .expert = static_cast<int32_t>(i),
                           .benefit = benefit});
  }
}

void MigrationPlanner::FindRelayouts(std::span<const Domain> planned, std::span<const ExpertPlace> places) {
  for (const int32_t expert : order_) {
    const auto i = static_cast<size_t>(expert);
    if (places[i].held()) continue;
    const double now = Shared(rows_[i], places[i], planned[i]);
    if (wanted_[i] == Domain::kCpu && !places[i].striped()) {
      migrations_.push_back(
          {.kind = Migration::Kind::kStripe,
           .from = places[i].dimm,
           .expert = expert,
           .benefit = now - Shared(rows_[i], ExpertPlace(), options_.used.cpu ? Domain::kCpu : Domain::kGpu)});
    } else if (wanted_[i] == Domain::kNear && places[i].striped()) {
      lies_[i] = static_cast<int8_t>(IdlestDimm());
      moves_[i] = true;
      near_[static_cast<size_t>(lies_[i])] += Near(rows_[i]);
      migrations_.push_back({.kind = Migration::Kind::kLocalise,
                             .to = lies_[i],
                             .expert = expert,
                             .benefit = now - Shared(rows_[i], {.dimm = lies_[i]}, Domain::kNear)});
    }
  }
}

void MigrationPlanner::FindMoves() {
  for (int64_t found = 0; found < costs_.dimms; ++found) {
    const auto busiest = static_cast<size_t>(std::ranges::max_element(near_) - near_.begin());
    const auto idlest = static_cast<size_t>(IdlestDimm());
    Migration best = {.kind = Migration::Kind::kMove,
                      .from = static_cast<int8_t>(busiest),
                      .to = static_cast<int8_t>(idlest),
                      .benefit = kLeastGain * near_[busiest]};
    const double least = best.benefit;
    for (size_t i = 0; i < lies_.size(); ++i) {
      if (std::cmp_not_equal(lies_[i], busiest) || moves_[i]) continue;
      const double seconds = Near(rows_[i]);
      const double gain = near_[busiest] - std::max(near_[busiest] - seconds, near_[idlest] + seconds);
      if (gain > best.benefit) {
        best.benefit = gain;
        best.expert = static_cast<int32_t>(i);
      }
    }
    if (best.benefit <= least) break;
    const auto moved = static_cast<size_t>(best.expert);
    near_[busiest] -= Near(rows_[moved]);
    near_[idlest] += Near(rows_[moved]);
    lies_[moved] = best.to;
    moves_[moved] = true;
    migrations_.push_back(best);
  }
}

bool MigrationPlanner::Occupy(const Migration& migration, ExpertPlace place, double window) {
  double bus = bus_;
  occupied_ = links_;
  const double share = costs_.link / static_cast<double>(costs_.dimms);  // of each DIMM, in a striped expert
  switch (migration.kind) {
    case Migration::Kind::kPrefetch:
      bus += std::max(costs_.bus, place.striped() ? costs_.read_striped : costs_.read_localised);
      break;
    case Migration::Kind::kLocalise:
    case Migration::Kind::kStripe: {
      const int8_t one = migration.kind == Migration::Kind::kStripe ? migration.from : migration.to;
      for (double& seconds : occupied_) seconds += share;
      occupied_[static_cast<size_t>(one)] += costs_.link - 2 * share;  // all but its own share
      break;
    }
    case Migration::Kind::kMove:
      occupied_[static_cast<size_t>(migration.from)] += costs_.link;
      occupied_[static_cast<size_t>(migration.to)] += costs_.link;
      break;
  }
  const double exposed = std::max(0.0, std::max(bus, *std::ranges::max_element(occupied_)) - window);
  if (exposed - exposed_ >= migration.benefit) return false;
  exposed_ = exposed;
  bus_ = bus;
  links_.swap(occupied_);
  return true;
}

void MigrationPlanner::CarryOut(const Migration& migration, std::span<const float> loads,
                                std::span<ExpertPlace> places) const {
  ExpertPlace& place = places[static_cast<size_t>(migration.expert)];
  if (migration.kind != Migration::Kind::kPrefetch) {
    place.dimm = migration.to;
    return;
  }
  // A free slot, or that of the expert of the fewest rows that is not wanted there.
  int64_t held = 0;
  ExpertPlace* victim = nullptr;
  float least = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i].held()) continue;
    ++held;
    if (wanted_[i] == Domain::kGpu || (victim != nullptr && loads[i] >= least)) continue;
    victim = &places[i];
    least = loads[i];
  }
  if (held < options_.slots) {
    const auto taken = [&](int8_t slot) { return std::ranges::find(places, slot, &ExpertPlace::slot) != places.end(); };
    int8_t free = 0;
    while (taken(free)) ++free;
    place.slot = free;
    return;
  }
  place.slot = std::exchange(victim->slot, ExpertPlace::kNotHeld);
}

std::span<const Migration> MigrationPlanner::Migrate(std::span<const float> loads, int64_t striped,
                                                     std::span<const Domain> planned, double window,
                                                     std::span<ExpertPlace> places) {
  migrations_.clear();
  exposed_ = bus_ = 0;
  std::ranges::fill(links_, 0);
  if (!options_.prefetch && !options_.relayout) return {};
  Wanted(loads, striped, wanted_);
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = WholeRows(loads[i]);
  if (options_.prefetch) FindPrefetches(planned, places);
  if (options_.relayout && options_.used.near) {
    std::ranges::fill(near_, 0);
    moves_.assign(moves_.size(), false);
    for (size_t i = 0; i < places.size(); ++i) {
      const bool near = wanted_[i] == Domain::kNear && !places[i].held();
      lies_[i] = near ? places[i].dimm : ExpertPlace::kStriped;
      if (near && !places[i].striped()) near_[static_cast<size_t>(lies_[i])] += Near(rows_[i]);
    }
    FindRelayouts(planned, places);
    FindMoves();
  }
  std::ranges::sort(migrations_, {}, [](const Migration& m) { return std::pair(-m.benefit, m.expert); });
  size_t kept = 0;
  for (const Migration& migration : migrations_) {
    if (migration.benefit <= 0) break;
    if (!Occupy(migration, places[static_cast<size_t>(migration.expert)], window)) continue;
    CarryOut(migration, loads, places);
    migrations_[kept++] = migration;
  }
  migrations_.resize(kept);
  return migrations_;
}

}  // namespace moestro::experts
