#include "loadtest/report/sections.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/report/number.h"
#include "common/report/plots.h"

namespace moestro::loadtest {
namespace {

using nlohmann::json;

std::string Counted(const std::map<std::string, int64_t>& counts) {
  return absl::StrJoin(
      counts, ", ", [](std::string* out, const auto& entry) { absl::StrAppend(out, entry.first, " ", entry.second); });
}

Section OverviewSection(const std::vector<GroupSummary>& groups, const Slo& slo) {
  Table table{.columns = {"requests", "paths", "errors", "sent", "completed", "cancelled", "failed", "in target",
                          "goodput /s", "output tok/s", "prompt tok", "cached tok", "output tok"},
              .rows = {},
              .text_columns = 3};
  for (const GroupSummary& group : groups) {
    std::string errors = Counted(group.errors);
    if (group.unfinished > 0) absl::StrAppend(&errors, errors.empty() ? "" : ", ", "unfinished ", group.unfinished);
    if (group.resumed > 0) absl::StrAppend(&errors, errors.empty() ? "" : ", ", "(resumed ", group.resumed, ")");
    table.rows.push_back({group.name, Counted(group.paths), errors, absl::StrCat(group.requests),
                          absl::StrCat(group.completed), absl::StrCat(group.cancelled), absl::StrCat(group.failed()),
                          absl::StrCat(group.good), ShortNumber(group.goodput()),
                          ShortNumber(group.output_tokens_per_second()), absl::StrCat(group.prompt_tokens),
                          absl::StrCat(group.cached_tokens), absl::StrCat(group.output_tokens)});
  }
  return {
      .title = "Requests",
      .about = absl::StrCat("In target: completed, first token within ", Seconds(slo.ttft_seconds),
                            " and on average no more than ", Seconds(slo.tpot_seconds),
                            " for each later token. Rates are over the time from the first request of the row to the "
                            "end of its last."),
      .tables = {std::move(table)},
      .plots = {}};
}

void AddLatencyRow(const std::string& group, const char* what, const Distribution& d, Table& table) {
  if (d.count == 0) return;
  table.rows.push_back({group, what, absl::StrCat(d.count), Seconds(d.mean), Seconds(d.p50), Seconds(d.p90),
                        Seconds(d.p99), Seconds(d.max)});
}

// Points of the cumulative distribution: value, percent of values at or below it.
std::vector<LinePlot::Point> Cumulative(std::vector<double> values) {
  constexpr int kPoints = 200;
  std::vector<LinePlot::Point> points;
  if (values.empty()) return points;
  std::ranges::sort(values);
  for (int i = 0; i <= kPoints; ++i) {
    const double q = static_cast<double>(i) / kPoints;
    points.push_back({.x = 1000 * Percentile(values, q), .y = 100 * q});
  }
  return points;
}

std::string CumulativePlot(const std::string& title, std::span<const Record> records,
                           std::vector<double> (*values)(std::span<const Record>)) {
  constexpr size_t kMostSeries = 6;
  std::vector<std::string> names;
  std::map<std::string, std::vector<Record>> groups;
  for (const Record& record : records) {
    if (!groups.contains(record.group)) names.push_back(record.group);
    groups[record.group].push_back(record);
  }
  LinePlot plot{.title = title, .x_label = "milliseconds", .y_label = "% of values", .series = {}};
  if (names.size() > kMostSeries) {
    plot.series.push_back({.name = "all", .points = Cumulative(values(records))});
  } else {
    for (const std::string& name : names) {
      plot.series.push_back({.name = name, .points = Cumulative(values(groups[name]))});
    }
  }
  std::erase_if(plot.series, [](const LinePlot::Series& series) { return series.points.empty(); });
  return ToSvg(plot);
}

std::vector<double> FirstTokenTimes(std::span<const Record> records) {
  std::vector<double> times;
  for (const Record& record : records) {
    if (record.ttft()) times.push_back(*record.ttft());
  }
  return times;
}

Section LatencySection(std::span<const Record> records, const std::vector<GroupSummary>& groups) {
  Table table{
      .columns = {"requests", "what", "count", "mean", "p50", "p90", "p99", "max"}, .rows = {}, .text_columns = 2};
  for (const GroupSummary& group : groups) {
    AddLatencyRow(group.name, "TTFT", group.ttft, table);
    AddLatencyRow(group.name, "TPOT", group.tpot, table);
    AddLatencyRow(group.name, "between tokens", group.inter_token, table);
    AddLatencyRow(group.name, "queue", group.queue, table);
    AddLatencyRow(group.name, "whole request", group.e2e, table);
    AddLatencyRow(group.name, "sent late", group.lateness, table);
  }
  return {
      .title = "Latency",
      .about =
          "TTFT: from sending to the first token. TPOT: mean time for each token after the first, one value per "
          "request. Between tokens: every gap, over all requests. Queue: the server's own figure for the wait for "
          "KV pages. Sent late: delay against the workload's plan; more than a little means that the client, or its "
          "limit of requests in flight, was the bottleneck.",
      .tables = {std::move(table)},
      .plots = {CumulativePlot("Time to the first token", records, FirstTokenTimes),
                CumulativePlot("Time between tokens", records, InterTokenGaps)}};
}

Section TimelineSection(std::span<const Record> records, double seconds) {
  const LoadTimeline timeline = MakeLoadTimeline(records, seconds);
  const auto line = [&](const std::string& name, const std::vector<double>& values) {
    LinePlot::Series series{.name = name, .points = {}};
    for (size_t i = 0; i < values.size(); ++i) {
      series.points.push_back({.x = (static_cast<double>(i) + 0.5) * timeline.step_seconds, .y = values[i]});
    }
    return series;
  };
  LinePlot tokens{.title = "Throughput",
                  .x_label = "seconds",
                  .y_label = "tokens/s",
                  .series = {line("output tokens per second", timeline.tokens_per_second)}};
  LinePlot requests{
      .title = "Requests",
      .x_label = "seconds",
      .y_label = "requests",
      .series = {line("in flight", timeline.in_flight), line("ended per second", timeline.requests_per_second)}};
  return {.title = "Over time",
          .about = absl::StrCat("Means of ", ShortNumber(timeline.step_seconds), " s, on the client's clock."),
          .tables = {},
          .plots = {ToSvg(tokens), ToSvg(requests)}};
}

}  // namespace

std::string Seconds(double seconds) {
  return std::abs(seconds) < 1 ? absl::StrCat(ShortNumber(1000 * seconds), " ms")
                               : absl::StrCat(ShortNumber(seconds), " s");
}

json ToJson(const Distribution& d) {
  if (d.count == 0) return {{"count", 0}};
  return {{"count", d.count}, {"mean", d.mean}, {"min", d.min}, {"p50", d.p50},
          {"p90", d.p90},     {"p99", d.p99},   {"max", d.max}};
}

json ToJson(const GroupSummary& group) {
  return {{"name", group.name},
          {"requests", group.requests},
          {"completed", group.completed},
          {"cancelled", group.cancelled},
          {"failed", group.failed()},
          {"unfinished", group.unfinished},
          {"errors", group.errors},
          {"paths", group.paths},
          {"resumed", group.resumed},
          {"prompt_tokens", group.prompt_tokens},
          {"cached_tokens", group.cached_tokens},
          {"output_tokens", group.output_tokens},
          {"seconds", group.seconds},
          {"output_tokens_per_second", group.output_tokens_per_second()},
          {"requests_per_second", group.requests_per_second()},
          {"good", group.good},
          {"goodput", group.goodput()},
          {"ttft_seconds", ToJson(group.ttft)},
          {"tpot_seconds", ToJson(group.tpot)},
          {"inter_token_seconds", ToJson(group.inter_token)},
          {"queue_seconds", ToJson(group.queue)},
          {"e2e_seconds", ToJson(group.e2e)},
          {"late_seconds", ToJson(group.lateness)}};
}

void AddCommonSections(std::span<const Record> records, double seconds, const Slo& slo, Report& report) {
  const std::vector<GroupSummary> groups = SummarizeGroups(records, slo);
  const GroupSummary all = Summarize("all", records, slo);
  report.data["all"] = ToJson(all);
  report.data["slo"] = {{"ttft_seconds", slo.ttft_seconds}, {"tpot_seconds", slo.tpot_seconds}};
  report.data["groups"] = json::array();
  for (const GroupSummary& group : groups) report.data["groups"].push_back(ToJson(group));
  report.findings.push_back(absl::StrCat(all.requests, " requests sent, ", all.completed, " completed, ", all.cancelled,
                                         " cancelled, ", all.failed(), " failed, ", all.good, " within the targets; ",
                                         ShortNumber(all.output_tokens_per_second()), " output tokens per second"));
  std::vector<GroupSummary> rows = groups;
  if (groups.size() > 1) rows.push_back(all);
  report.sections.push_back(OverviewSection(rows, slo));
  report.sections.push_back(LatencySection(records, rows));
  report.sections.push_back(TimelineSection(records, seconds));
}

json RequestsJson(std::span<const Record> records) {
  json requests = json::array();
  for (const Record& record : records) {
    json out = {{"group", record.group},
                {"tag", record.tag},
                {"server", record.server},
                {"request_id", record.request_id},
                {"scheduled", record.scheduled},
                {"sent", record.sent},
                {"prompt_tokens", record.prompt_tokens},
                {"cached_tokens", record.cached_tokens},
                {"output_tokens", record.tokens.size()},
                {"resumed", record.resumed},
                {"path", record.path},
                {"path_reason", record.path_reason}};
    if (record.ttft()) out["ttft"] = *record.ttft();
    if (record.tpot()) out["tpot"] = *record.tpot();
    if (record.cancelled) out["cancelled"] = *record.cancelled;
    if (record.queue_seconds) out["queue_seconds"] = *record.queue_seconds;
    if (record.ended) {
      out["ended"] = *record.ended;
      out["status"] = absl::StatusCodeToString(record.status.code());
      if (!record.status.ok()) out["message"] = std::string(record.status.message());
    }
    requests.push_back(std::move(out));
  }
  return requests;
}

}  // namespace moestro::loadtest
