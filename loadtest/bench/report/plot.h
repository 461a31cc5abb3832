// Plots of the report as inline SVG, coloured by the page's style sheet.
#pragma once

#include <span>
#include <string>

#include "loadtest/bench/report/report.h"

namespace moestro::bench {

// Bars of the median ratios, with smallest and largest value and the target as a dashed line. Rows without a reference
// have no bar. Empty if no row has a reference.
std::string RatioPlot(std::span<const Row> rows);

}  // namespace moestro::bench
