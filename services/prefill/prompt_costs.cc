#include "services/prefill/prompt_costs.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status.h"
#include "common/roofline/measure_layers.h"
#include "common/roofline/pass_rows.h"

namespace moestro::prefill {

using model::MlaForm;
using roofline::LayerTimes;
using roofline::PromptForecast;

PromptCost InPlaceCost(const weights::ModelSpec& spec, const LayerTimes& times, MlaFormPolicy form, int64_t chunk,
                       bool alone) {
  const PromptForecast forecast(spec, times);
  const int64_t longest = spec.max_position_embeddings;
  const auto at = [&](int64_t tokens) {
    return PromptCost::Point{.seconds = forecast.InPlace(form.ForPrompt(tokens), chunk, 0, tokens)};
  };
  return {.way = PromptWay::kInPlace,
          .alone = alone,
          .points = roofline::CostPoints(longest, at),
          .seconds_per_pair = forecast.PairSeconds(form.ForPrompt(longest), chunk)};
}

PromptCost StreamedCost(const weights::ModelSpec& spec, std::span<const LayerTimes> times, bool alone,
                        absl::FunctionRef<std::optional<StreamShape>(int64_t tokens)> shape) {
  // Of the devices that compute together and whose times are known.
  const auto for_each = [&](const StreamShape& with, auto&& visit) {
    PromptForecast::Streams streams = with.streams;
    const int64_t known = std::min(std::ssize(times), streams.devices.parts());
    for (streams.device = 0; streams.device < known; ++streams.device) {
      visit(PromptForecast(spec, times[static_cast<size_t>(streams.device)]), streams);
    }
  };
  PromptCost cost{.way = PromptWay::kStreamed, .alone = alone};
  std::optional<StreamShape> longest;
  const auto at = [&](int64_t tokens) -> std::optional<PromptCost::Point> {
    const std::optional<StreamShape> found = shape(tokens);
    if (!found) return std::nullopt;
    longest = found;
    PromptCost::Point slowest;
    for_each(*found, [&](const PromptForecast& forecast, const PromptForecast::Streams& streams) {
      const PromptCost::Point point = forecast.Streamed(found->form, streams, tokens);
      if (point.seconds > slowest.seconds) slowest = point;
    });
    return slowest;
  };
  cost.points = roofline::CostPoints(spec.max_position_embeddings, at);
  if (!longest) return cost;
  // A pass expands what comes before it once.
  const int64_t pass = std::max<int64_t>(1, cost.points.back().tokens / longest->streams.passes);
  for_each(*longest, [&](const PromptForecast& forecast, const PromptForecast::Streams& streams) {
    const double share = streams.own_processors ? streams.share() : 1;
    cost.seconds_per_pair = std::max(cost.seconds_per_pair, forecast.PairSeconds(longest->form, pass, share));
  });
  return cost;
}

absl::StatusOr<std::vector<InPlaceTimes>> MeasureInPlace(MlaFormPolicy form, model::Engine& engine,
                                                         SharedCores& cores) {
  const weights::ModelSpec& spec = engine.spec();
  roofline::MeasureOptions options{.rows =
                                       roofline::RowsToMeasure(std::min(engine.max_rows(), roofline::kFewestPassRows))};
  // First the form of long prompts, where attention matters.
  options.forms = {form.ForPrompt(spec.max_position_embeddings)};
  if (form.ForPrompt(1) != options.forms.front()) options.forms.push_back(form.ForPrompt(1));
  std::vector<InPlaceTimes> measured;
  MOE_RETURN_IF_ERROR(cores.Measure([&](bool alone) -> absl::Status {
    MOE_ASSIGN_OR_RETURN(
        LayerTimes times,
        roofline::MeasureLayers(
            spec, options,
            [&](const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted) {
              return engine.Forward(batch, interrupted, [](int64_t, std::span<const float>) {});
            },
            [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }));
    measured.push_back({.alone = alone, .times = std::move(times)});
    return absl::OkStatus();
  }));
  return measured;
}

int64_t ChooseChunk(const weights::ModelSpec& spec, std::span<const InPlaceTimes> measured, int threads) {
  const int64_t most = roofline::PassRowsWithin(spec, threads);
  int64_t rows = roofline::kFewestPassRows;
  for (const InPlaceTimes& each : measured) {
    rows = std::max(rows, roofline::ChoosePassRows(roofline::PassTimesOf(spec, each.times), most));
  }
  return rows;
}

std::vector<PromptCost> InPlaceCosts(const weights::ModelSpec& spec, std::span<const InPlaceTimes> measured,
                                     MlaFormPolicy form, int64_t chunk) {
  std::vector<PromptCost> costs;
  for (const InPlaceTimes& each : measured) {
    costs.push_back(InPlaceCost(spec, roofline::WithRows(spec, each.times, chunk), form, chunk, each.alone));
  }
  return costs;
}

}  // namespace moestro::prefill
