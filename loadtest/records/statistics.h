// Statistics over records. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loadtest/records/record.h"

namespace moestro::loadtest {

// The value below which a share `q` (0 to 1) of the values falls, linear between the two nearest ranks (numpy's
// default). REQUIRES: `sorted` is ascending and not empty.
double Percentile(std::span<const double> sorted, double q);
// REQUIRES: not empty.
double Median(std::vector<double> values);

struct Distribution {
  int64_t count = 0;  // 0: the others are meaningless
  double mean = 0;
  double min = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};
Distribution Describe(std::vector<double> values);

// Service-level objective: the promise to a user.
struct Slo {
  double ttft_seconds = 30;
  double tpot_seconds = 0.05;
};
// True if completed, with first token and speed within the targets.
bool MeetsSlo(const Record& record, const Slo& slo);

struct GroupSummary {
  std::string name;
  int64_t requests = 0;
  int64_t completed = 0;
  int64_t cancelled = 0;                  // by the client
  int64_t unfinished = 0;                 // still running when the test ended
  std::map<std::string, int64_t> errors;  // status code → requests
  std::map<std::string, int64_t> paths;   // of the requests that started; "not said" if not reported
  int64_t resumed = 0;                    // resumed after a role had died or their pages had been taken
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  double seconds = 0;  // from the first one's sending to the last one's end
  int64_t good = 0;    // within the objective
  // Seconds. Failed or cancelled requests count with the tokens they got; e2e: completed ones only.
  Distribution ttft, tpot, inter_token, queue, e2e, lateness;

  int64_t failed() const;
  double output_tokens_per_second() const;
  double requests_per_second() const;  // completed ones
  double goodput() const;              // good ones per second
};

// Summary of all records.
GroupSummary Summarize(const std::string& name, std::span<const Record> records, const Slo& slo);
// One for each group, in order of first appearance.
std::vector<GroupSummary> SummarizeGroups(std::span<const Record> records, const Slo& slo);

// Gaps between the messages of each request.
std::vector<double> InterTokenGaps(std::span<const Record> records);

// The course of the run, in steps of equal length.
struct LoadTimeline {
  double step_seconds = 1;
  std::vector<double> tokens_per_second;
  std::vector<double> in_flight;            // mean of the step
  std::vector<double> requests_per_second;  // ended ones
};
// `seconds`: duration of the run. At most `most_steps` steps, each a whole number of seconds or a fraction of one.
LoadTimeline MakeLoadTimeline(std::span<const Record> records, double seconds, int most_steps = 120);

}  // namespace moestro::loadtest
