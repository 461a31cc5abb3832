// Chooses how many prompt rows a step may include without stalling the streams that run beside them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "services/decode/recent_samples.h"

namespace moestro::decode {

// Learns the cost of a step from past steps: base(decode rows) seconds, plus seconds for each prompt row. A step is not
// linear in its rows. The first ones cost most, because each adds experts to read until all are read. So seconds per
// row are kept by chunk size, one class for each power of two. A chunk may be at most one class larger than what was
// measured. Its rows are then priced like the smaller chunk's, so the forecast errs on the safe side. Not thread-safe;
// knows no clock.
class ChunkSizer {
 public:
  struct Options {
    double bound_seconds = 0;    // on a step in which sequences decode; infinity: none
    int64_t max_rows = 0;        // prompt rows in any step
    double bound_over_base = 0;  // the bound is at least this many times the same step without prompts

    // `base_seconds`: of that step.
    double Bound(double base_seconds) const { return std::max(bound_seconds, bound_over_base * base_seconds); }
  };
  // Included in every step at any cost: a prompt makes progress even when decoding alone exceeds the bound.
  static constexpr int64_t kMinRows = 8;
  // Forecasts have some error, so they must stay within this share of the bound.
  static constexpr double kTargetShare = 0.9;

  explicit ChunkSizer(const Options& options) : options_(options) {}

  // Prompt rows for a step in which `decode_rows` sequences decode; max_rows if none decodes, or without a bound.
  int64_t Choose(int64_t decode_rows) const;

  // Records that a step took `seconds`.
  void Note(int64_t decode_rows, int64_t prompt_rows, double seconds);

 private:
  struct SizeClass {
    RecentSamples seconds_per_row;
    int64_t noted_at = 0;  // value of mixed_steps_
  };

  double BaseSeconds(int64_t decode_rows) const;
  const SizeClass* Known(size_t size_class) const;

  const Options options_;
  std::vector<RecentSamples> base_seconds_;  // by decode rows
  std::array<SizeClass, 32> classes_;        // [k]: chunks of 2^k .. 2^(k+1) - 1 rows
  int64_t mixed_steps_ = 0;
};

}  // namespace moestro::decode
