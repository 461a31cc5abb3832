// Reads what a /metrics endpoint says.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace moestro::loadtest {

// Gauges and counters, summed over their labels; histograms are left out. Lines that are not understood are skipped: an
// endpoint may say more than is asked of it.
std::map<std::string, double> ParsePrometheusText(std::string_view text);

}  // namespace moestro::loadtest
