#include "loadtest/report/ramp.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/report/number.h"
#include "common/report/plots.h"
#include "loadtest/report/sections.h"

namespace moestro::loadtest {

void AddRampSection(const RampOptions& options, const std::vector<RampStep>& steps, std::span<const Record> records,
                    Report& report) {
  std::map<std::string, GroupSummary> by_name;
  for (GroupSummary& group : SummarizeGroups(records, options.slo)) by_name[group.name] = std::move(group);
  const char* unit = options.open_loop ? "requests per second" : "requests at a time";
  Table table{.columns = {"load", "errors", "requests", "in target", "goodput /s", "completed /s", "output tok/s",
                          "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99"},
              .rows = {},
              .text_columns = 2};
  LinePlot goodput{.title = "Goodput", .x_label = unit, .y_label = "requests/s", .series = {}};
  LinePlot::Series good{.name = "within the targets", .points = {}}, completed{.name = "completed", .points = {}};
  LinePlot tpot{.title = "Time per output token", .x_label = unit, .y_label = "milliseconds", .series = {}};
  LinePlot::Series p50{.name = "p50", .points = {}}, p99{.name = "p99", .points = {}};
  nlohmann::json data = nlohmann::json::array();
  for (const RampStep& step : steps) {
    const std::string name = StepName(options, step.level);
    const GroupSummary& group = by_name[name];
    table.rows.push_back({name, absl::StrCat(group.failed()), absl::StrCat(group.requests), absl::StrCat(step.good),
                          ShortNumber(step.goodput()), ShortNumber(group.requests_per_second()),
                          ShortNumber(group.output_tokens_per_second()), Seconds(group.ttft.p50),
                          Seconds(group.ttft.p99), Seconds(group.tpot.p50), Seconds(group.tpot.p99)});
    good.points.push_back({.x = step.level, .y = step.goodput()});
    completed.points.push_back({.x = step.level, .y = group.requests_per_second()});
    p50.points.push_back({.x = step.level, .y = 1000 * group.tpot.p50});
    p99.points.push_back({.x = step.level, .y = 1000 * group.tpot.p99});
    data.push_back({{"level", step.level},
                    {"seconds", step.end - step.begin},
                    {"good", step.good},
                    {"goodput", step.goodput()},
                    {"requests", ToJson(group)}});
  }
  goodput.series = {std::move(good), std::move(completed)};
  tpot.series = {std::move(p50), std::move(p99)};
  report.data["steps"] = std::move(data);
  report.data["knee"] = nullptr;
  if (const auto knee = FindKnee(steps)) {
    report.data["knee"] = steps[*knee].level;
    report.findings.push_back(absl::StrCat("Saturated at ", StepName(options, steps[*knee].level), ": ",
                                           ShortNumber(steps[*knee].goodput()),
                                           " requests per second within the targets; more load gains less than 5 %"));
  } else if (std::ranges::any_of(steps, [](const RampStep& step) { return step.good > 0; })) {
    report.findings.push_back(
        absl::StrCat("Not saturated yet, goodput may rise further: no step finished after the best one",
                     report.interrupted ? " (interrupted)" : " (--to)"));
  } else {
    report.findings.push_back(
        "No request was within the targets: lower the load, or the targets (--slo-ttft, --slo-tpot)");
  }
  report.sections.push_back(
      {.title = "Steps",
       .about =
           "Goodput: requests within the targets, over the time from the step's beginning to its last request's end. "
           "The knee is the first step within 5 % of the best, if another finished after it. Errors: requests "
           "that failed.",
       .tables = {std::move(table)},
       .plots = {ToSvg(goodput), ToSvg(tpot)}});
}

}  // namespace moestro::loadtest
