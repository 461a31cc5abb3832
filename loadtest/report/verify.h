// The verdict on equality, and the longest wait. Pure.
#pragma once

#include <span>

#include "loadtest/report/report.h"
#include "loadtest/run/record.h"
#include "loadtest/workloads/verify.h"

namespace moestro::loadtest {

// `errors_allowed`: requests that failed are no failure of the test.
void AddVerifySection(const Verdict& verdict, std::span<const Record> crowded, std::span<const Record> alone,
                      bool errors_allowed, Report& report);

}  // namespace moestro::loadtest
