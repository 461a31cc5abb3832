#include "common/telemetry/histogram.h"

#include <cmath>

namespace moestro {

HistogramCounts Since(const HistogramCounts& now, const HistogramCounts& before) {
  HistogramCounts difference;
  for (const auto& [bound, count] : now.at_most) {
    const auto earlier = before.at_most.find(bound);
    const double grown = earlier == before.at_most.end() ? count : count - earlier->second;
    if (grown < 0) return now;
    difference.at_most[bound] = grown;
  }
  return difference;
}

std::optional<double> Quantile(const HistogramCounts& histogram, double q) {
  if (histogram.count() <= 0) return std::nullopt;
  const double rank = q * histogram.count();
  double lower = 0;
  double below = 0;  // observations up to and including `lower`
  for (const auto& [bound, count] : histogram.at_most) {
    if (count >= rank && count > below) {
      return std::isinf(bound) ? lower : lower + (bound - lower) * (rank - below) / (count - below);
    }
    lower = std::isinf(bound) ? lower : bound;
    below = count;
  }
  return lower;
}

}  // namespace moestro
