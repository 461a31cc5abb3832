// Reads what a /metrics endpoint says.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/telemetry/histogram.h"

namespace moestro {

// Each name once, summed over its labels.
struct ScrapedMetrics {
  std::map<std::string, double> values;  // gauges and counters
  std::map<std::string, HistogramCounts> histograms;
};

// Lines that are not understood are skipped: an endpoint may say more than is asked of it.
ScrapedMetrics ParsePrometheusText(std::string_view text);

}  // namespace moestro
