// What a histogram of Prometheus tells, without its role, labels or server.
#pragma once

#include <map>
#include <optional>

namespace moestro {

struct HistogramCounts {
  // Bucket's upper bound → observations that are not above it (cumulative). The last bound is +infinity, with all.
  std::map<double, double> at_most;

  double count() const { return at_most.empty() ? 0 : at_most.rbegin()->second; }
};

// What was observed between two looks. `now` as it is if it cannot have grown out of `before`: the process that counts
// has been started again.
HistogramCounts Since(const HistogramCounts& now, const HistogramCounts& before);

// The value that a share `q` (0 to 1) of the observations is not above, taking those of a bucket as evenly spread over
// it, from 0 on in the first. Observations above all finite bounds count as the largest of these. Nothing without
// observations.
std::optional<double> Quantile(const HistogramCounts& histogram, double q);

}  // namespace moestro
