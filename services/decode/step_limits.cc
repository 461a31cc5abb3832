#include "services/decode/step_limits.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/roofline/pass_rows.h"

namespace moestro::decode {
namespace {

constexpr double kStepSeconds = 0.25;  // four tokens a second are about what a reader follows
constexpr double kStepOverOne = 4;     // on slow machines a batch may cost each of its sequences this much
constexpr double kBoundOverBase = 1.5;
constexpr double kLongestPromptStep = 1;

bool FollowsTimes(const DecodeConfig& config) { return config.mode == Mode::kLatency; }

std::string Milliseconds(double seconds) { return absl::StrFormat("%.3g ms", 1e3 * seconds); }

std::string BatchReason(const DecodeConfig& config, const roofline::PromptForecast* forecast, int batch) {
  const std::string text = absl::StrCat("batch up to ", batch);
  if (config.max_batch > 0) return text + " (set)";
  if (forecast == nullptr) return text + " (constant: no step was measured)";
  return absl::StrCat(text, ": a step of ", batch, " sequences takes ", Milliseconds(forecast->StepSeconds(batch)),
                      ", of 1 ", Milliseconds(forecast->StepSeconds(1)), ", within max(", Milliseconds(kStepSeconds),
                      ", ", kStepOverOne, " x a step of 1)");
}

std::string BoundReason(const DecodeConfig& config, const StepLimits& limits) {
  if (std::isinf(limits.bound_seconds)) return "no bound on steps";
  const std::string text = absl::StrCat("prompts keep steps below ", Milliseconds(limits.bound_seconds));
  if (config.itl_bound_ms > 0) return text + " (set)";
  if (limits.bound_over_base == 0) return text + " (constant)";
  return absl::StrCat(text, " or ", limits.bound_over_base, " x the step without them");
}

std::string ChunkReason(const DecodeConfig& config, const roofline::PassTimes* pass, int64_t chunk) {
  const std::string text = absl::StrCat("up to ", chunk, " rows of prompts");
  if (config.max_chunk_tokens > 0) return text + " (set)";
  if (pass == nullptr) return text + " (constant)";
  return absl::StrCat(text, ": reading all weights takes ", Milliseconds(pass->read), ", a row ",
                      Milliseconds(pass->row));
}

}  // namespace

StepLimits RoomToMeasure(const DecodeConfig& config) {
  StepLimits room = config.limits();
  if (FollowsTimes(config) && config.max_batch == 0) room.max_batch = kMostSequencesForLatency;
  return room;
}

int ChooseBatch(const roofline::PromptForecast& forecast) {
  const double most = std::max(kStepSeconds, kStepOverOne * forecast.StepSeconds(1));
  int batch = kMostSequencesForLatency;
  while (batch > kFewestSequences && forecast.StepSeconds(batch) > most) --batch;
  return batch;
}

int64_t ChooseChunk(const weights::ModelSpec& spec, const roofline::LayerTimes& times, int64_t most) {
  const roofline::PassTimes pass = roofline::PassTimesOf(spec, times);
  const double within = (kLongestPromptStep - pass.read) / std::max(pass.row, 1e-9);
  const double fitting = std::clamp(within, 0.0, static_cast<double>(most));
  return roofline::ChoosePassRows(pass, static_cast<int64_t>(fitting));
}

ChosenLimits ChooseLimits(const DecodeConfig& config, const weights::ModelSpec& spec,
                          std::span<const MeasuredLayers> measured, int64_t most_chunk) {
  StepLimits limits = config.limits();
  if (!FollowsTimes(config) || measured.empty()) {
    return {limits, BatchReason(config, nullptr, limits.max_batch), BoundReason(config, limits),
            ChunkReason(config, nullptr, limits.max_chunk_tokens)};
  }
  // With the role's own cores, where steps take longest.
  const roofline::PromptForecast forecast(spec, measured.front().times);
  const roofline::PassTimes pass = roofline::PassTimesOf(spec, measured.front().times);
  if (config.max_batch == 0) limits.max_batch = ChooseBatch(forecast);
  if (config.itl_bound_ms == 0) limits.bound_over_base = kBoundOverBase;
  const bool has_chunk = config.max_chunk_tokens == 0 && most_chunk > limits.max_chunk_tokens;
  if (has_chunk) limits.max_chunk_tokens = ChooseChunk(spec, measured.front().times, most_chunk);
  return {limits, BatchReason(config, &forecast, limits.max_batch), BoundReason(config, limits),
          ChunkReason(config, has_chunk ? &pass : nullptr, limits.max_chunk_tokens),
          forecast.StepSeconds(limits.max_batch)};
}

std::string ChosenLimits::reason() const { return absl::StrCat(of_batch, "; ", of_bound, "; ", of_chunk); }

int BackgroundSequences(const DecodeConfig& config, const StepLimits& limits) {
  return config.mode == Mode::kThroughput ? limits.max_batch : std::max(1, limits.max_batch - 1);
}

}  // namespace moestro::decode
