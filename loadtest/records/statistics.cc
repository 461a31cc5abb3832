#include "loadtest/records/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/base/check.h"

namespace moestro::loadtest {

double Percentile(std::span<const double> sorted, double q) {
  MOE_CHECK(!sorted.empty());
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  if (below + 1 >= sorted.size()) return sorted.back();
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[below + 1] - sorted[below]);
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return Percentile(values, 0.5);
}

Distribution Describe(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {.count = static_cast<int64_t>(values.size()),
          .mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
          .min = values.front(),
          .p50 = Percentile(values, 0.5),
          .p90 = Percentile(values, 0.9),
          .p99 = Percentile(values, 0.99),
          .max = values.back()};
}

bool MeetsSlo(const Record& record, const Slo& slo) {
  if (!record.completed() || !record.ttft() || *record.ttft() > slo.ttft_seconds) return false;
  return record.tpot().value_or(0) <= slo.tpot_seconds;
}

int64_t GroupSummary::failed() const {
  int64_t count = 0;
  for (const auto& [code, requests_with_it] : errors) count += requests_with_it;
  return count;
}
double GroupSummary::output_tokens_per_second() const {
  return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0;
}
double GroupSummary::requests_per_second() const { return seconds > 0 ? static_cast<double>(completed) / seconds : 0; }
double GroupSummary::goodput() const { return seconds > 0 ? static_cast<double>(good) / seconds : 0; }

std::vector<double> InterTokenGaps(std::span<const Record> records) {
  std::vector<double> gaps;
  for (const Record& record : records) {
    for (size_t i = 1; i < record.arrivals.size(); ++i) {
      gaps.push_back(record.arrivals[i].at - record.arrivals[i - 1].at);
    }
  }
  return gaps;
}

GroupSummary Summarize(const std::string& name, std::span<const Record> records, const Slo& slo) {
  GroupSummary summary;
  summary.name = name;
  std::vector<double> ttft, tpot, queue, e2e, lateness;
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (const Record& record : records) {
    ++summary.requests;
    summary.completed += record.completed();
    summary.cancelled += record.was_cancelled();
    summary.unfinished += !record.ended.has_value();
    if (record.failed()) ++summary.errors[absl::StatusCodeToString(record.status.code())];
    if (record.started) ++summary.paths[record.path.empty() ? "not said" : record.path];
    summary.resumed += record.resumed > 0;
    summary.prompt_tokens += record.prompt_tokens;
    summary.cached_tokens += record.cached_tokens;
    summary.output_tokens += static_cast<int64_t>(record.tokens.size());
    summary.good += MeetsSlo(record, slo);
    first = std::min(first, record.sent);
    last = std::max(last, record.ended.value_or(record.arrivals.empty() ? record.sent : record.arrivals.back().at));
    if (record.ttft()) ttft.push_back(*record.ttft());
    if (record.tpot()) tpot.push_back(*record.tpot());
    if (record.queue_seconds) queue.push_back(*record.queue_seconds);
    if (record.completed()) e2e.push_back(*record.ended - record.sent);
    lateness.push_back(record.sent - record.scheduled);
  }
  summary.seconds = records.empty() ? 0 : last - first;
  summary.ttft = Describe(std::move(ttft));
  summary.tpot = Describe(std::move(tpot));
  summary.inter_token = Describe(InterTokenGaps(records));
  summary.queue = Describe(std::move(queue));
  summary.e2e = Describe(std::move(e2e));
  summary.lateness = Describe(std::move(lateness));
  return summary;
}

std::vector<GroupSummary> SummarizeGroups(std::span<const Record> records, const Slo& slo) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<Record>> groups;
  for (const Record& record : records) {
    if (!groups.contains(record.group)) names.push_back(record.group);
    groups[record.group].push_back(record);
  }
  std::vector<GroupSummary> summaries;
  for (const std::string& name : names) summaries.push_back(Summarize(name, groups[name], slo));
  return summaries;
}

LoadTimeline MakeLoadTimeline(std::span<const Record> records, double seconds, int most_steps) {
  LoadTimeline timeline;
  for (const double step : {0.1, 0.2, 0.5, 1.0}) {
    timeline.step_seconds = step;
    if (seconds / step <= most_steps) break;
  }
  if (seconds / timeline.step_seconds > most_steps) timeline.step_seconds = std::ceil(seconds / most_steps);
  const double length = timeline.step_seconds;
  const size_t steps = static_cast<size_t>(std::max(0.0, seconds) / length) + 1;
  timeline.tokens_per_second.assign(steps, 0);
  timeline.in_flight.assign(steps, 0);
  timeline.requests_per_second.assign(steps, 0);
  const auto step_of = [&](double at) { return std::min(static_cast<size_t>(std::max(0.0, at) / length), steps - 1); };
  for (const Record& record : records) {
    for (const Arrival& arrival : record.arrivals) {
      timeline.tokens_per_second[step_of(arrival.at)] += arrival.tokens / length;
    }
    if (record.ended) timeline.requests_per_second[step_of(*record.ended)] += 1 / length;
    const double end = record.ended.value_or(seconds);
    for (size_t step = step_of(record.sent); step <= step_of(end); ++step) {
      const double begin = static_cast<double>(step) * length;
      timeline.in_flight[step] += std::max(0.0, std::min(end, begin + length) - std::max(record.sent, begin)) / length;
    }
  }
  return timeline;
}

}  // namespace moestro::loadtest
