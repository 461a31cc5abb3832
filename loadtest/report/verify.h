// The verdict on equal tokens, and the longest wait. Pure.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "loadtest/records/record.h"
#include "loadtest/report/report.h"
#include "loadtest/workloads/verify.h"

namespace moestro::loadtest {

// `errors_allowed`: failed requests do not fail the test.
void AddVerifySection(const Verdict& verdict, std::span<const Record> crowded, std::span<const Record> alone,
                      bool errors_allowed, Report& report);

// Whether the test passed. It fails if a token differs, a request failed, or a comparable request was not compared. If
// nothing was compared it never passes; an interrupt excuses the rest. Never returns the code of a request's own error,
// which would look like an error of this process.
absl::Status CheckVerdict(const Verdict& verdict, std::span<const Record> crowded, std::span<const Record> alone,
                          bool errors_allowed, bool interrupted);

}  // namespace moestro::loadtest
