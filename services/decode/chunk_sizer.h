// How many rows of prompts a step may take along, so that the streams that run beside them do not stall.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "services/decode/recent_samples.h"

namespace moestro {

// Learns from past steps what a step costs: base(decode rows) seconds, and seconds for each prompt row on top. A step
// is not linear in its rows: the first ones are dearest, because each makes more experts be read, until all of them
// are. So seconds per row are kept by the size of the chunk they were measured on, a class for each power of two, and a
// chunk may be at most one class larger than what was measured: growing is priced with the smaller chunk's dearer rows,
// so the forecast errs on the safe side. Not thread-safe; knows no clock.
class ChunkSizer {
 public:
  struct Options {
    double bound_seconds = 0;  // of a step in which sequences decode
    int64_t max_rows = 0;      // of prompts in any step
  };
  // Taken in every step, whatever it costs: a prompt always gets on, also when decoding alone exceeds the bound.
  static constexpr int64_t kMinRows = 8;

  explicit ChunkSizer(const Options& options) : options_(options) {}

  // Prompt rows for a step in which `decode_rows` sequences decode; max_rows if none does.
  int64_t Choose(int64_t decode_rows) const;

  // A step has taken `seconds`.
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

}  // namespace moestro
