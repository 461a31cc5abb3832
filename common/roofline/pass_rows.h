// How many rows of a prompt one pass over the layers should take. A pass reads all weights, however few rows it has:
// the more rows share one read, the less of the time goes into reading. Pure functions of what was measured.
#pragma once

#include <cstdint>

#include "common/roofline/prompt_forecast.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

// Seconds of a pass over all layers, without attention to earlier tokens: read + row * rows, once the rows meet all
// experts.
struct PassTimes {
  double read = 0;  // of all weights
  double row = 0;   // more for each row
};

// From the last two samples. Few rows meet some of the experts only: how many is what choices at random would meet.
PassTimes PassTimesOf(const weights::ModelSpec& spec, const LayerTimes& times);

inline constexpr int64_t kFewestPassRows = 256;
inline constexpr int64_t kMostPassRows = 4096;
// What the activations of a pass may take.
inline constexpr int64_t kMostPassBytes = int64_t{1} << 30;

// As many rows as these allow.
int64_t PassRowsWithin(const weights::ModelSpec& spec, int threads);

// The smallest multiple of 64 with read <= row * rows / 10, from kFewestPassRows to `most`.
int64_t ChoosePassRows(const PassTimes& times, int64_t most);

// The times with a sample of `rows` rows, as the last two samples let expect, if `rows` are more than these have.
LayerTimes WithRows(const weights::ModelSpec& spec, LayerTimes times, int64_t rows);

}  // namespace moestro::roofline
