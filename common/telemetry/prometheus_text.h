// Parses the response of a /metrics endpoint.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/telemetry/histogram.h"

namespace moestro {

// Each name once, summed over its labels.
struct ScrapedMetrics {
  std::map<std::string, double> values;  // gauges and counters
  // Of these, those with the label `device`: by name, then by the label's value.
  std::map<std::string, std::map<std::string, double>> by_device;
  std::map<std::string, HistogramCounts> histograms;
};

// Skips lines that it does not understand: an endpoint may contain more than is needed.
ScrapedMetrics ParsePrometheusText(std::string_view text);

}  // namespace moestro
