// The verdict on equality, and the longest wait. Pure.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "loadtest/report/report.h"
#include "loadtest/run/record.h"
#include "loadtest/workloads/verify.h"

namespace moestro::loadtest {

// `errors_allowed`: requests that failed are no failure of the test.
void AddVerifySection(const Verdict& verdict, std::span<const Record> crowded, std::span<const Record> alone,
                      bool errors_allowed, Report& report);

// Whether the test passed: not if a token differs, a request failed, or what could have been compared was not. Nothing
// compared is never a pass; an interrupt excuses what was left over. Never the code of a request's own error, which
// would be taken for one of this process.
absl::Status CheckVerdict(const Verdict& verdict, std::span<const Record> crowded, std::span<const Record> alone,
                          bool errors_allowed, bool interrupted);

}  // namespace moestro::loadtest
