// The roles' metrics during the test: memory must be flat, and no page may leak. Pure.
#pragma once

#include <vector>

#include "loadtest/metrics/scraper.h"
#include "loadtest/report/report.h"

namespace moestro::loadtest {

// Adds first, last, least and greatest value of every metric that is not always zero, plots of memory, pages and batch,
// and data["metrics"].
void AddMetricsSection(const std::vector<Scrapes>& scrapes, Report& report);

}  // namespace moestro::loadtest
