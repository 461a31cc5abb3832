// How much one step may hold: what is set, and otherwise what follows from the times that the role has measured. Pure
// functions: whoever shows a setting gets its value and the reason from here.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "services/decode/chunk_sizer.h"
#include "services/decode/config.h"
#include "services/decode/prompt_costs.h"

namespace moestro::decode {

// Of mode latency: of the sequences that are chosen.
inline constexpr int kFewestSequences = 4;
inline constexpr int kMostSequencesForLatency = 64;

// What the forward pass has room for while its times are not known: what is set, or the most that may follow for
// sequences, and as many rows of prompts as are measured.
StepLimits RoomToMeasure(const DecodeConfig& config);

// The largest number of sequences, within the bounds above, whose step is within max(250 ms, 4 times a step of one).
int ChooseBatch(const roofline::PromptForecast& forecast);

// The most rows of prompts for steps in which no sequence decodes, as ChoosePassRows, but a step ends within a second:
// whoever comes waits for it. At most `most`, which memory allows.
int64_t ChooseChunk(const weights::ModelSpec& spec, const roofline::LayerTimes& times, int64_t most);

struct ChosenLimits {
  StepLimits limits;
  // Each value with its inputs.
  std::string of_batch;
  std::string of_bound;
  std::string of_chunk;

  double step_seconds = 0;  // of so many sequences, without prompts; 0: not measured

  std::string reason() const;  // all of them, for the log
};
// `measured`: as MeasureSteps gives it; empty: nothing was, so that constants take its place. `most_chunk`: of a value
// that is not set.
ChosenLimits ChooseLimits(const DecodeConfig& config, const weights::ModelSpec& spec,
                          std::span<const MeasuredLayers> measured, int64_t most_chunk);

// Requests that a file of them should have in work at once. It leaves a place to others where their latency counts.
int BackgroundSequences(const DecodeConfig& config, const StepLimits& limits);

}  // namespace moestro::decode
