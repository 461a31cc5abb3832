// Plots of the report as inline SVG, coloured by the page's style sheet.
#pragma once

#include <span>
#include <string>

#include "loadtest/bench/report/report.h"

namespace moestro::bench {

// Bars of the median ratios with their smallest and largest value and, dashed, the target; rows without a reference
// have none. Empty if no row has one.
std::string RatioPlot(std::span<const Row> rows);

}  // namespace moestro::bench
