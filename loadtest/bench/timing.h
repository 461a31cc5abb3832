// How the benchmark times: several works side by side, round by round. A temporary slowdown of the machine affects all
// of them and cancels out of their ratio.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/base/steady_seconds.h"

namespace moestro::bench {

// One unit of work to be timed.
struct Work {
  std::function<double()> run;              // does one unit; returns its amount (bytes, operations)
  std::function<void()> prepare = nullptr;  // before each sample, not timed; may be empty
};

// Several units of one work, run back to back.
struct Sample {
  double amount = 0;
  double seconds = 0;
  int64_t units = 0;
};
using Series = std::vector<Sample>;  // one sample per round

struct Summary {
  double median = 0;
  double min = 0;
  double max = 0;
};

// The median of an even number of values is the mean of the middle two. REQUIRES: at least one value.
Summary Summarize(std::vector<double> values);

Summary AmountPerSecond(const Series& series);
Summary SecondsPerUnit(const Series& series);
// Summary of round-by-round ratios. REQUIRES: both series have the same number of rounds.
Summary RateRatio(const Series& subject, const Series& reference);   // of amounts per second
Summary SpeedRatio(const Series& subject, const Series& reference);  // of units per second

class RoundTimer {  // thread-compatible
 public:
  struct Options {
    int rounds = 9;
    double min_sample_seconds = 0.1;  // units are repeated until a sample lasts this long
  };
  using Clock = std::function<double()>;  // seconds, monotonic

  explicit RoundTimer(Options options, Clock clock = SteadySeconds);

  // First runs every work until a sample is long enough, which also warms up caches and clocks; these runs do not
  // count. Then runs every work once in each round. Each round starts with the next work, so that no work always
  // follows the same other. Result: one series for each work, in their order.
  std::vector<Series> Measure(std::span<const Work> works) const;

  int rounds() const { return options_.rounds; }

 private:
  Sample Take(const Work& work, int64_t units) const;
  int64_t UnitsForSample(const Work& work) const;

  Options options_;
  Clock clock_;
};

}  // namespace moestro::bench
