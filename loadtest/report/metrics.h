// What the roles' metrics did meanwhile: memory flat, no page leaked. Pure.
#pragma once

#include <vector>

#include "loadtest/metrics/scraper.h"
#include "loadtest/report/report.h"

namespace moestro::loadtest {

// First, last, least and greatest value of every metric that is not zero throughout, plots of memory, pages and batch,
// and data["metrics"].
void AddMetricsSection(const std::vector<Scrapes>& scrapes, Report& report);

}  // namespace moestro::loadtest
