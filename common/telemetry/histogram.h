// The contents of a Prometheus histogram, without its role, labels or server.
#pragma once

#include <map>
#include <optional>

namespace moestro {

struct HistogramCounts {
  // Bucket's upper bound → number of observations up to it (cumulative). The last bound is +infinity, with all.
  std::map<double, double> at_most;

  double count() const { return at_most.empty() ? 0 : at_most.rbegin()->second; }
};

// The observations between two scrapes. Returns `now` unchanged if it cannot have grown out of `before`: the counting
// process was restarted.
HistogramCounts Since(const HistogramCounts& now, const HistogramCounts& before);

// The q-quantile, q in [0, 1], with a bucket's observations spread evenly over it; the first bucket starts at 0.
// Observations above all finite bounds count as the largest of these. Empty without observations.
std::optional<double> Quantile(const HistogramCounts& histogram, double q);

}  // namespace moestro
