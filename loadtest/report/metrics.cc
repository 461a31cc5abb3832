#include "loadtest/report/metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/report/plots.h"

namespace moestro::loadtest {
namespace {

struct MetricPlot {
  const char* title;
  const char* y_label;
  std::vector<const char*> prefixes;  // of the metrics' names
  double unit;                        // value of one unit on the axis
};

bool Shows(const MetricPlot& plot, const std::string& metric) {
  const auto begins = [&](const char* prefix) { return metric.starts_with(prefix); };
  return std::ranges::any_of(plot.prefixes, begins);
}

std::string Draw(const MetricPlot& kind, const std::vector<Scrapes>& scrapes) {
  LinePlot plot{.title = kind.title, .x_label = "seconds", .y_label = kind.y_label, .series = {}};
  for (const Scrapes& endpoint : scrapes) {
    for (const auto& [metric, points] : endpoint.series) {
      if (!Shows(kind, metric)) continue;
      LinePlot::Series series{.name = absl::StrCat(metric, " ", endpoint.endpoint), .points = {}};
      for (const MetricPoint& point : points) series.points.push_back({.x = point.at, .y = point.value / kind.unit});
      plot.series.push_back(std::move(series));
    }
  }
  return ToSvg(plot);
}

std::string Value(const std::string& metric, double value) {
  constexpr double kMebi = 1 << 20;
  if (absl::EndsWith(metric, "_bytes")) return absl::StrFormat("%.2f MiB", value / kMebi);
  return absl::StrFormat("%.6g", value);
}

}  // namespace

void AddMetricsSection(const std::vector<Scrapes>& scrapes, Report& report) {
  Table table{.columns = {"metric", "endpoint", "first", "last", "least", "greatest"}, .rows = {}, .text_columns = 2};
  nlohmann::json data = nlohmann::json::array();
  for (const Scrapes& endpoint : scrapes) {
    for (const auto& [metric, points] : endpoint.series) {
      if (metric.starts_with("exposer_")) continue;  // the endpoint's own counters
      const auto [least, greatest] = std::ranges::minmax(points, {}, &MetricPoint::value);
      const double first = points.front().value, last = points.back().value;
      data.push_back({{"metric", metric},
                      {"endpoint", endpoint.endpoint},
                      {"first", first},
                      {"last", last},
                      {"min", least.value},
                      {"max", greatest.value},
                      {"scrapes", points.size()}});
      if (least.value == 0 && greatest.value == 0) continue;
      table.rows.push_back({metric, endpoint.endpoint, Value(metric, first), Value(metric, last),
                            Value(metric, least.value), Value(metric, greatest.value)});
    }
    if (endpoint.failed > 0) {
      report.findings.push_back(absl::StrCat(endpoint.failed, " scrapes of ", endpoint.endpoint,
                                             " failed, the last one with: ", endpoint.last_error));
    }
  }
  report.data["metrics"] = std::move(data);
  constexpr double kMebi = 1 << 20;
  const std::vector<MetricPlot> plots = {{"Private memory", "MiB", {"moestro_process_private_bytes"}, kMebi},
                                         {"KV pages", "pages", {"moestro_kv_pages", "moestro_kv_leases"}, 1},
                                         {"Running and waiting",
                                          "requests",
                                          {"moestro_decode_batch_size", "moestro_decode_sequences",
                                           "moestro_requests_running", "moestro_requests_waiting"},
                                          1}};
  Section section{.title = "Metrics of the roles",
                  .about =
                      "From each role's /metrics, summed over labels: first scrape before the first request, last "
                      "one after the last. Without a leak private memory is flat once it is warm, and pages and leases "
                      "end where they began (pages of the prefix cache count as free). "
                      "Metrics that were 0 throughout are omitted.",
                  .tables = {std::move(table)},
                  .plots = {}};
  for (const MetricPlot& plot : plots) section.plots.push_back(Draw(plot, scrapes));
  report.sections.push_back(std::move(section));
}

}  // namespace moestro::loadtest
