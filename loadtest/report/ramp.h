// The steps of a ramp and its knee. Pure.
#pragma once

#include <span>

#include "loadtest/records/statistics.h"
#include "loadtest/report/report.h"
#include "loadtest/workloads/ramp.h"

namespace moestro::loadtest {

// Adds table and curves of the steps, the knee as a finding, data["steps"] and data["knee"] (null: no knee).
void AddRampSection(const RampOptions& options, const std::vector<RampStep>& steps, std::span<const Record> records,
                    Report& report);

}  // namespace moestro::loadtest
