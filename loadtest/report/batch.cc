#include "loadtest/report/batch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/report/number.h"
#include "loadtest/report/sections.h"

namespace moestro::loadtest {

BatchTimes TimesOf(std::span<const Record> records) {
  BatchTimes times;
  double begin = 0, first = 0, last = 0;
  for (const Record& record : records) {
    if (!record.completed() || record.arrivals.empty()) continue;
    begin = times.generated_tokens == 0 ? record.sent : std::min(begin, record.sent);
    first = std::max(first, record.arrivals.front().at);
    last = std::max(last, record.arrivals.back().at);
    times.prompt_tokens += record.prompt_tokens;
    times.generated_tokens += static_cast<int64_t>(record.tokens.size());
  }
  times.prefill = first - begin;
  times.decode = last - first;
  return times;
}

void AddBatchSection(std::span<const Record> records, Report& report) {
  const BatchTimes times = TimesOf(records);
  report.findings.push_back(absl::StrCat(ShortNumber(times.tokens_per_second()), " generated tokens/s: ",
                                         times.generated_tokens, " tokens in ", Seconds(times.prefill + times.decode)));
  Table table{.columns = {"prompt tok", "generated tok", "prefill", "decode", "generated tok/s"},
              .rows = {{absl::StrCat(times.prompt_tokens), absl::StrCat(times.generated_tokens), Seconds(times.prefill),
                        Seconds(times.decode), ShortNumber(times.tokens_per_second())}},
              .text_columns = 0};
  report.sections.push_back(
      {.title = "Batch",
       .about = "Completed requests. Generated tok/s: generated tokens over the time of prefill and decode, as "
                "MoE-Lightning counts (section 5.1). Prefill: from the first sending until every request had its "
                "first token; a server that does not take all prompts at once decodes in that time, too. Decode: from "
                "there to the last token.",
       .tables = {std::move(table)},
       .plots = {}});
  report.data["batch"] = {{"prompt_tokens", times.prompt_tokens},
                          {"generated_tokens", times.generated_tokens},
                          {"prefill_seconds", times.prefill},
                          {"decode_seconds", times.decode},
                          {"generated_tokens_per_second", times.tokens_per_second()}};
}

}  // namespace moestro::loadtest
