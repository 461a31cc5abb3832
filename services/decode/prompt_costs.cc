#include "services/decode/prompt_costs.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status.h"
#include "common/roofline/measure_layers.h"

namespace moestro::decode {
namespace {

absl::StatusOr<roofline::LayerTimes> Measure(ForwardPass& forward, int64_t max_rows) {
  const roofline::MeasureOptions options{.rows = roofline::RowsToMeasure(max_rows),
                                         .forms = {model::MlaForm::kAbsorbed}};
  return roofline::MeasureLayers(
      forward.spec(), options,
      [&](const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted) {
        return forward.Forward(batch, interrupted, [](int64_t, std::span<const float>) {});
      },
      [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); });
}

}  // namespace

std::vector<PromptCost> CostsOf(const weights::ModelSpec& spec, const roofline::LayerTimes& times,
                                const ChunkSizer::Options& chunks, int64_t max_batch, bool alone) {
  const roofline::PromptForecast forecast(spec, times);
  std::vector<PromptCost> costs;
  for (int64_t decoding = 0;; decoding = std::min(std::max<int64_t>(1, 2 * decoding), max_batch)) {
    const roofline::PromptForecast::Steps steps{
        .max_rows = chunks.max_rows,
        .least = ChunkSizer::kMinRows,
        .bound_seconds = ChunkSizer::kTargetShare * chunks.Bound(forecast.StepSeconds(decoding)),
        .decoding = decoding};
    // Longer prompts begin with the steps of shorter ones.
    int64_t done = 0;
    double seconds = 0;
    const auto at = [&](int64_t tokens) {
      while (true) {
        const auto step = forecast.NextStep(steps, done, tokens - done);
        if (done + step.rows >= tokens) break;
        done += step.rows;
        seconds += step.seconds;
      }
      return PromptCost::Point{.seconds = seconds + forecast.Chunked(steps, done, tokens - done)};
    };
    costs.push_back({.way = PromptWay::kChunked,
                     .alone = alone,
                     .decoding = static_cast<uint32_t>(decoding),
                     .points = roofline::CostPoints(spec.max_position_embeddings, at),
                     .seconds_per_pair = forecast.PairSeconds(model::MlaForm::kAbsorbed, chunks.max_rows)});
    if (decoding == max_batch) return costs;
  }
}

absl::StatusOr<std::vector<MeasuredLayers>> MeasureSteps(ForwardPass& forward, int64_t max_rows, SharedCores& cores) {
  std::vector<MeasuredLayers> measured;
  MOE_RETURN_IF_ERROR(cores.Measure([&](bool alone) -> absl::Status {
    MOE_ASSIGN_OR_RETURN(roofline::LayerTimes times, Measure(forward, max_rows));
    measured.push_back({.alone = alone, .times = std::move(times)});
    return absl::OkStatus();
  }));
  return measured;
}

std::vector<PromptCost> CostsOf(const weights::ModelSpec& spec, std::span<const MeasuredLayers> measured,
                                const ChunkSizer::Options& chunks, int64_t max_batch) {
  std::vector<PromptCost> costs;
  for (const MeasuredLayers& step : measured) {
    const std::vector<PromptCost> own = CostsOf(spec, step.times, chunks, max_batch, step.alone);
    costs.insert(costs.end(), own.begin(), own.end());
  }
  return costs;
}

}  // namespace moestro::decode
