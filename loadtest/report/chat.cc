#include "loadtest/report/chat.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/report/number.h"
#include "common/report/plots.h"
#include "loadtest/report/sections.h"

namespace moestro::loadtest {

void AddChatSection(std::span<const Record> records, const Slo& slo, Report& report) {
  Table table{
      .columns = {"turn", "requests", "prompt tok", "cached tok", "cached share", "TTFT p50", "TTFT p90", "TTFT max"},
      .rows = {},
      .text_columns = 1};
  LinePlot ttft{.title = "Time to the first token by turn", .x_label = "turn", .y_label = "milliseconds", .series = {}};
  LinePlot tokens{.title = "Prompt by turn", .x_label = "turn", .y_label = "tokens", .series = {}};
  LinePlot::Series p50{.name = "p50", .points = {}}, p90{.name = "p90", .points = {}};
  LinePlot::Series prompt{.name = "prompt", .points = {}}, cached{.name = "of it cached", .points = {}};
  nlohmann::json data = nlohmann::json::array();
  double turn = 0;
  for (const GroupSummary& group : SummarizeGroups(records, slo)) {
    ++turn;
    const auto requests = static_cast<double>(group.requests);
    const double prompt_tokens = static_cast<double>(group.prompt_tokens) / requests;
    const double cached_tokens = static_cast<double>(group.cached_tokens) / requests;
    const double share = prompt_tokens > 0 ? cached_tokens / prompt_tokens : 0;
    p50.points.push_back({.x = turn, .y = 1000 * group.ttft.p50});
    p90.points.push_back({.x = turn, .y = 1000 * group.ttft.p90});
    prompt.points.push_back({.x = turn, .y = prompt_tokens});
    cached.points.push_back({.x = turn, .y = cached_tokens});
    table.rows.push_back({group.name, absl::StrCat(group.requests), ShortNumber(prompt_tokens),
                          ShortNumber(cached_tokens), ShortNumber(share), Seconds(group.ttft.p50),
                          Seconds(group.ttft.p90), Seconds(group.ttft.max)});
    data.push_back({{"turn", group.name},
                    {"requests", group.requests},
                    {"prompt_tokens", prompt_tokens},
                    {"cached_tokens", cached_tokens},
                    {"ttft_seconds", ToJson(group.ttft)}});
  }
  ttft.series = {std::move(p50), std::move(p90)};
  tokens.series = {std::move(prompt), std::move(cached)};
  report.sections.push_back(
      {.title = "Turns",
       .about = "Tokens are means over the users. Each turn resends everything before it. Uncached tokens are "
                "computed again, so TTFT should follow the message's length, not the conversation's.",
       .tables = {std::move(table)},
       .plots = {ToSvg(ttft), ToSvg(tokens)}});
  report.data["turns"] = std::move(data);
}

}  // namespace moestro::loadtest
