#include "loadtest/report/verify.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "loadtest/report/sections.h"

namespace moestro::loadtest {
namespace {

double LongestWait(std::span<const Record> records) {
  double longest = 0;
  for (const Record& record : records) longest = std::max(longest, record.longest_wait());
  return longest;
}

int64_t Failed(std::span<const Record> records) {
  return std::ranges::count_if(records, [](const Record& record) { return record.failed(); });
}

// Empty if no request failed.
std::string Failures(std::span<const Record> crowded, std::span<const Record> alone) {
  for (const std::span<const Record> records : {crowded, alone}) {
    const auto failed = std::ranges::find_if(records, &Record::failed);
    if (failed == records.end()) continue;
    return absl::StrCat("requests failed, the first one (", failed->request_id,
                        ") so: ", absl::string_view(failed->status.message()));
  }
  return "";
}

}  // namespace

void AddVerifySection(const Verdict& verdict, std::span<const Record> crowded, std::span<const Record> alone,
                      bool errors_allowed, Report& report) {
  const int64_t failed = Failed(crowded) + Failed(alone);
  const double wait_crowded = LongestWait(crowded), wait_alone = LongestWait(alone);
  report.findings.push_back(absl::StrCat(verdict.mismatches.size(), " mismatches in ", verdict.tokens, " tokens of ",
                                         verdict.compared, " completed and ", verdict.prefixes_compared,
                                         " cut short requests; ", verdict.not_compared, " not compared"));
  report.findings.push_back(absl::StrCat("No request waited longer than ", Seconds(std::max(wait_crowded, wait_alone)),
                                         " for its next event (side by side ", Seconds(wait_crowded), ", alone ",
                                         Seconds(wait_alone), ")"));
  if (failed > 0) {
    report.findings.push_back(absl::StrCat(failed, " requests failed", errors_allowed ? " (--allow-errors)" : ""));
  }
  report.data["verify"] = {{"mismatches", verdict.mismatches.size()},
                           {"compared", verdict.compared},
                           {"prefixes_compared", verdict.prefixes_compared},
                           {"not_compared", verdict.not_compared},
                           {"tokens", verdict.tokens},
                           {"failed", failed},
                           {"longest_wait_seconds", std::max(wait_crowded, wait_alone)}};
  Table table{.columns = {"request", "what differs", "group", "server's id", "path", "first at token", "prompt",
                          "cached", "resumed"},
              .rows = {},
              .text_columns = 5};
  constexpr size_t kMostRows = 50;
  for (const Mismatch& mismatch : verdict.mismatches) {
    if (table.rows.size() == kMostRows) break;
    const auto record = std::ranges::find(crowded, mismatch.index, &Record::tag);
    table.rows.push_back({absl::StrCat(mismatch.index), mismatch.what, record->group, record->request_id, record->path,
                          absl::StrCat(mismatch.position), absl::StrCat(record->prompt_tokens),
                          absl::StrCat(record->cached_tokens), absl::StrCat(record->resumed)});
  }
  Section section{
      .title = "The same tokens",
      .about =
          "Requests ran side by side, then each again alone. Tokens must be the same, bit for bit, whether greedy or "
          "sampled with a seed. A request that was cancelled or failed must have received the first tokens of its "
          "second run. The wait is the longest time without an event of a request, from "
          "sending it to its end.",
      .tables = {},
      .plots = {}};
  if (!table.rows.empty()) section.tables.push_back(std::move(table));
  report.sections.push_back(std::move(section));
}

absl::Status CheckVerdict(const Verdict& verdict, std::span<const Record> crowded, std::span<const Record> alone,
                          bool errors_allowed, bool interrupted) {
  if (!verdict.mismatches.empty()) {
    return absl::DataLossError(absl::StrCat(verdict.mismatches.size(), " requests got different tokens than alone"));
  }
  const std::string failures = Failures(crowded, alone);
  if (!failures.empty() && !errors_allowed) return absl::InternalError(failures);
  const std::string why = failures.empty() ? "" : "; " + failures;
  if (verdict.compared + verdict.prefixes_compared == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("nothing was compared", interrupted ? " before the interrupt" : why));
  }
  if (verdict.not_compared > 0 && !interrupted) {
    return absl::FailedPreconditionError(absl::StrCat(
        verdict.not_compared, " requests that got tokens were not compared: alone they did not complete", why));
  }
  return absl::OkStatus();
}

}  // namespace moestro::loadtest
