#include "common/roofline/prompt_forecast.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/roofline/traffic.h"
#include "common/roofline/work_count.h"

namespace moestro::roofline {
namespace {

// Two streams of copies share a direction of the bus evenly: exchanges get half of it while weights stream.
constexpr double kExchangeShare = 0.5;

}  // namespace

double AttentionOperations(const weights::ModelSpec& spec, model::MlaForm form, int64_t window, double before,
                           double rows) {
  double operations = AttentionFlops(spec, form, VisiblePairs(before, rows, window));
  if (spec.kv_lora_rank > 0 && form == model::MlaForm::kUnabsorbed) {
    const auto expanded = static_cast<double>(spec.num_heads * (spec.qk_nope_head_dim + spec.v_head_dim));
    operations += 2 * before * expanded * static_cast<double>(spec.kv_lora_rank);
  }
  return operations;
}

PromptForecast::PromptForecast(const weights::ModelSpec& spec, const LayerTimes& times) : spec_(spec), times_(times) {
  MOE_CHECK(!times.samples.empty());
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    const bool moe = spec.IsMoeLayer(l);
    const auto known = std::ranges::find_if(
        kinds_, [&](const Kind& kind) { return kind.moe == moe && kind.window == spec.WindowOf(l); });
    if (known == kinds_.end()) {
      kinds_.push_back({moe, spec.WindowOf(l), 1});
    } else {
      ++known->layers;
    }
  }
}

// Between two samples in proportion; above the last one as from the one before to it, and from nothing if it is the
// only one; below the first one as that.
double PromptForecast::Base(bool moe, double rows) const {
  const auto seconds = [&](const LayerTimes::Sample& sample) {
    const auto sampled = static_cast<double>(sample.rows);
    // The attention of a sample is that of a layer without a window, which few rows do not reach.
    const double attention =
        times_.attention(times_.form) * AttentionOperations(spec_, times_.form, /*window=*/0, 0, sampled);
    return std::max(0.0, (moe ? sample.moe : sample.dense) - attention);
  };
  const auto& samples = times_.samples;
  if (rows <= static_cast<double>(samples.front().rows)) return seconds(samples.front());
  size_t above = 1;
  while (above + 1 < samples.size() && static_cast<double>(samples[above].rows) < rows) ++above;
  if (samples.size() == 1) return seconds(samples[0]) * rows / static_cast<double>(samples[0].rows);
  const LayerTimes::Sample &low = samples[above - 1], &high = samples[above];
  const double share = (rows - static_cast<double>(low.rows)) / static_cast<double>(high.rows - low.rows);
  return seconds(low) + share * std::max(0.0, seconds(high) - seconds(low));
}

double PromptForecast::Compute(const Kind& kind, model::MlaForm form, double before, double rows) const {
  return Base(kind.moe, rows) + times_.attention(form) * AttentionOperations(spec_, form, kind.window, before, rows);
}

double PromptForecast::Pass(model::MlaForm form, double before, double rows) const {
  double seconds = 0;
  for (const Kind& kind : kinds_) seconds += kind.layers * Compute(kind, form, before, rows);
  return seconds;
}

double PromptForecast::StepSeconds(int64_t sequences) const {
  return sequences == 0 ? 0 : Pass(model::MlaForm::kAbsorbed, 0, static_cast<double>(sequences)) + times_.head;
}

double PromptForecast::InPlace(model::MlaForm form, int64_t chunk, int64_t before, int64_t rows) const {
  double seconds = times_.head;
  for (int64_t done = 0; done < rows; done += chunk) {
    seconds += Pass(form, static_cast<double>(before + done), static_cast<double>(std::min(chunk, rows - done)));
  }
  return seconds;
}

PromptForecast::Step PromptForecast::NextStep(const Steps& steps, int64_t before, int64_t left) const {
  const auto seconds = [&](int64_t rows) {
    return Pass(model::MlaForm::kAbsorbed, static_cast<double>(before), static_cast<double>(rows + steps.decoding)) +
           (steps.decoding > 0 ? times_.head : 0);
  };
  int64_t most = std::min(steps.max_rows, left);
  if (steps.decoding > 0 && seconds(most) > steps.bound_seconds) {
    int64_t fits = std::min(steps.least, most);  // or is taken although it does not
    while (most - fits > 1) {
      const int64_t middle = (fits + most) / 2;
      (seconds(middle) > steps.bound_seconds ? most : fits) = middle;
    }
    most = fits;
  }
  return {most, seconds(most)};
}

double PromptForecast::Chunked(const Steps& steps, int64_t before, int64_t rows) const {
  double seconds = steps.decoding > 0 ? 0 : times_.head;
  for (int64_t done = 0; done < rows;) {
    const Step step = NextStep(steps, before + done, rows - done);
    seconds += step.seconds;
    done += step.rows;
  }
  return seconds;
}

PromptCost::Point PromptForecast::Streamed(model::MlaForm form, const Streams& streams, int64_t rows) const {
  const ProportionalParts& devices = streams.devices;
  const auto device = static_cast<int>(streams.device);
  const double share = streams.share();
  const double computed = streams.own_processors ? share : 1;  // of the rows, in the measured time
  PromptCost::Point point{.tokens = static_cast<uint32_t>(rows), .seconds = times_.head};
  for (int64_t p = 0; p < streams.passes; ++p) {
    const IndexRange pass = EvenPart(rows, p, streams.passes);
    const auto before = static_cast<double>(pass.begin), count = static_cast<double>(pass.size());
    std::vector<int64_t> shares;
    for (int64_t d = 0; d < devices.parts(); ++d) {
      shares.push_back(devices.Part(pass.size(), d).size());
    }
    double loads = 0, computes = 0;
    for (const Kind& kind : kinds_) {
      double load = kind.moe ? times_.moe_load - times_.expert_load * (1 - share) : times_.dense_load;
      double compute = Base(kind.moe, count * computed) +
                       times_.attention(form) * AttentionOperations(spec_, form, kind.window, before, count) * computed;
      if (devices.parts() > 1) {
        auto received = static_cast<double>(RingTraffic(spec_.kv_dim(), shares, device).received);
        if (kind.moe) {
          const ExpertTraffic experts = SmallEpTraffic(spec_, shares, device);
          received += static_cast<double>(experts.dispatch.received + experts.combine.received);
        }
        load += received * times_.link_seconds;
        compute += received * times_.link_seconds / kExchangeShare;
      }
      loads += kind.layers * load;
      computes += kind.layers * compute;
    }
    // Copies and kernels overlap over all layers, but for the weights that the first layer waits for.
    point.seconds += std::max(loads, computes) + (p == 0 ? loads / static_cast<double>(spec_.num_layers) : 0);
    point.slack += std::max(0.0, loads - computes);
  }
  return point;
}

double PromptForecast::PairSeconds(model::MlaForm form, int64_t expanded_every, double share) const {
  const auto rows = static_cast<double>(expanded_every);
  double operations = 0;
  for (const Kind& kind : kinds_) {
    if (kind.window > 0) continue;
    operations += kind.layers *
                  (AttentionOperations(spec_, form, 0, 1, rows) - AttentionOperations(spec_, form, 0, 0, rows)) / rows;
  }
  return times_.attention(form) * operations * share;
}

std::vector<PromptCost::Point> CostPoints(int64_t longest,
                                          absl::FunctionRef<std::optional<PromptCost::Point>(int64_t tokens)> at) {
  std::vector<PromptCost::Point> points;
  const auto add = [&](int64_t tokens) {
    std::optional<PromptCost::Point> point = at(tokens);
    if (!point || point->seconds > kMaxCostSeconds) return false;
    point->tokens = static_cast<uint32_t>(tokens);
    points.push_back(*point);
    return true;
  };
  for (int64_t power = 16; power < longest; power *= 2) {
    if (!add(power)) return points;
    if (power / 2 * 3 < longest && !add(power / 2 * 3)) return points;
  }
  add(longest);
  return points;
}

}  // namespace moestro::roofline
