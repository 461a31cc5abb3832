#include "services/cli/paper/claims.h"

#include <algorithm>
#include <cmath>

namespace moestro::cli {

const char* OriginName(Origin origin) {
  switch (origin) {
    case Origin::kSimulated:
      return "simulated";
    case Origin::kMeasured:
      return "measured";
    case Origin::kCited:
      return "cited";
    case Origin::kComputed:
      return "computed";
  }
  return "";
}

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMiss:
      return "miss";
    case Verdict::kNotMet:
      return "not met";
    case Verdict::kMet:
      return "met";
    case Verdict::kFitted:
      return "fitted";
    case Verdict::kOpen:
      return "open";
  }
  return "";
}

double Deviation(const Claim& claim) {
  const bool compared = claim.basis == Basis::kPredicted || claim.basis == Basis::kExact;
  return compared ? claim.ours / claim.paper - 1 : std::nan("");
}

double Excess(const Claim& claim) {
  const double deviation = Deviation(claim);
  if (std::isnan(deviation)) return std::numeric_limits<double>::infinity();
  switch (claim.bound) {
    case Bound::kAtMost:
      return std::max(0.0, deviation);
    case Bound::kAtLeast:
      return std::max(0.0, -deviation);
    case Bound::kNear:
      break;
  }
  return std::abs(deviation);
}

Verdict VerdictOf(const Claim& claim) {
  if (claim.basis == Basis::kOpen) return Verdict::kOpen;
  if (claim.basis == Basis::kFitted) return Verdict::kFitted;
  const double excess = Excess(claim);
  if (excess > (claim.basis == Basis::kExact ? kRounding : kMostDeviation)) return Verdict::kMiss;
  return claim.bound != Bound::kNear && excess > 0 ? Verdict::kNotMet : Verdict::kMet;
}

void AddClaims(const PaperComparison& comparison, Figure& figure) {
  for (size_t i = 0; i < comparison.built.size(); ++i) {
    const PaperFigure &built = comparison.built[i], &paper_way = comparison.paper_way[i];
    if (figure.id != built.figure) continue;
    figure.claims.push_back({.what = built.what,
                             .paper = built.paper,
                             .bound = built.bound,
                             .section = built.section,
                             .ours = built.simulated,
                             .basis = built.fitted ? Basis::kFitted : Basis::kPredicted,
                             .paper_way = paper_way.simulated,
                             .paper_way_fitted = paper_way.fitted});
  }
}

}  // namespace moestro::cli
