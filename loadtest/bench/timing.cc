#include "loadtest/bench/timing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"

namespace moestro::bench {
namespace {

// A clock too coarse to resolve a unit must not make a sample endless.
constexpr int64_t kMaxUnits = int64_t{1} << 24;

template <typename Function>
Summary SummarizeEach(const Series& series, Function value) {
  std::vector<double> values;
  for (const Sample& sample : series) values.push_back(value(sample));
  return Summarize(std::move(values));
}

template <typename Function>
Summary SummarizePairs(const Series& subject, const Series& reference, Function value) {
  MOE_CHECK(subject.size() == reference.size());
  std::vector<double> values;
  for (size_t i = 0; i < subject.size(); ++i) values.push_back(value(subject[i]) / value(reference[i]));
  return Summarize(std::move(values));
}

double Rate(const Sample& sample) { return sample.amount / sample.seconds; }
double UnitRate(const Sample& sample) { return static_cast<double>(sample.units) / sample.seconds; }

}  // namespace

Summary Summarize(std::vector<double> values) {
  MOE_CHECK(!values.empty());
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {.median = median, .min = values.front(), .max = values.back()};
}

Summary AmountPerSecond(const Series& series) { return SummarizeEach(series, Rate); }
Summary SecondsPerUnit(const Series& series) {
  return SummarizeEach(series, [](const Sample& sample) { return 1 / UnitRate(sample); });
}
Summary RateRatio(const Series& subject, const Series& reference) { return SummarizePairs(subject, reference, Rate); }
Summary SpeedRatio(const Series& subject, const Series& reference) {
  return SummarizePairs(subject, reference, UnitRate);
}

RoundTimer::RoundTimer(Options options, Clock clock) : options_(options), clock_(std::move(clock)) {
  MOE_CHECK(options_.rounds >= 1);
}

Sample RoundTimer::Take(const Work& work, int64_t units) const {
  if (work.prepare) work.prepare();
  Sample sample{.amount = 0, .seconds = 0, .units = units};
  const double begin = clock_();
  for (int64_t i = 0; i < units; ++i) sample.amount += work.run();
  sample.seconds = clock_() - begin;
  return sample;
}

int64_t RoundTimer::UnitsForSample(const Work& work) const {
  int64_t units = 1;
  while (units < kMaxUnits) {
    const double seconds = Take(work, units).seconds;
    if (seconds >= options_.min_sample_seconds) break;
    // At most tenfold at a time: the first units are the slowest, and an estimate from them alone would be too small.
    const double wanted = seconds > 0 ? options_.min_sample_seconds / seconds * static_cast<double>(units) * 1.1 : 0;
    const auto next = static_cast<int64_t>(std::min(std::ceil(wanted), 10.0 * static_cast<double>(units)));
    units = seconds > 0 ? std::max(units + 1, next) : 10 * units;
  }
  return std::min(units, kMaxUnits);
}

std::vector<Series> RoundTimer::Measure(std::span<const Work> works) const {
  std::vector<int64_t> units;
  for (const Work& work : works) units.push_back(UnitsForSample(work));
  std::vector<Series> series(works.size());
  for (size_t round = 0; round < static_cast<size_t>(options_.rounds); ++round) {
    for (size_t i = 0; i < works.size(); ++i) {
      const size_t index = (round + i) % works.size();
      series[index].push_back(Take(works[index], units[index]));
    }
  }
  return series;
}

}  // namespace moestro::bench
