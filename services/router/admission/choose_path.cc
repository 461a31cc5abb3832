#include "services/router/admission/choose_path.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace moestro::router {
namespace {

// The reason given for a long prompt: whether decode is in use.
const char* LoadReason(const PathSettings& settings, const NodeLoad& load) {
  return DecodeIsIdle(settings, load) ? "decode is idle" : "decode is in use";
}

// ", predicted: chunked 0.41 s, in_place 0.30 s, for a place 0.2 s of chunked"
std::string DescribeForecast(const PathForecast& forecast) {
  std::string text;
  for (const PromptWay way : kPromptWays) {
    if (forecast.of(way)) absl::StrAppendFormat(&text, ", %s %.3g s", WayName(way), *forecast.of(way));
  }
  if (forecast.place_seconds > 0)
    absl::StrAppendFormat(&text, ", for a place %.3g s of chunked", forecast.place_seconds);
  return text.empty() ? text : ", predicted: " + text.substr(2);
}

std::string Describe(const NodeLoad& load, const PathForecast& forecast) {
  const std::string counts = absl::StrFormat("decoding: %u, in prefill: %u", load.decoding, load.prefilling);
  const std::string predicted = DescribeForecast(forecast);
  if (load.decoding > 0) return counts + predicted;
  if (!load.decode_idle) return counts + ", decode has had no work yet" + predicted;
  return counts + absl::StrFormat(", decode had work %.0f s ago", Seconds(*load.decode_idle)) + predicted;
}

// The faster of prefill's ways; nullopt: none is predicted.
std::optional<PromptWay> FasterInPrefill(const PathForecast& forecast) {
  const std::optional<double> in_place = forecast.of(PromptWay::kInPlace), streamed = forecast.of(PromptWay::kStreamed);
  if (!in_place && !streamed) return std::nullopt;
  if (!in_place) return PromptWay::kStreamed;
  return streamed && *streamed < *in_place ? PromptWay::kStreamed : PromptWay::kInPlace;
}

bool IsWorthIt(double challenger, double seconds) {
  return challenger * kPredictedMargin < seconds && challenger + kPredictedMarginSeconds < seconds;
}

// "812 new tokens: chunked 0.41 s, in prefill 0.9 s", of the prompt by itself.
std::string PredictedReason(const PathForecast& forecast, uint32_t new_tokens, PromptWay in_prefill) {
  const auto& own = forecast.for_client;
  const auto text = [&](PromptWay way) {
    const std::optional<double> seconds = own[static_cast<size_t>(way)];
    return seconds ? absl::StrFormat("%.2g s", *seconds) : std::string("unknown");
  };
  return absl::StrFormat("%u new tokens: chunked %s, in prefill %s%s", new_tokens, text(PromptWay::kChunked),
                         text(in_prefill), in_prefill == PromptWay::kStreamed ? " (streamed)" : "");
}

}  // namespace

bool IsForPrefill(const PathSettings& settings, uint32_t new_tokens) {
  return !settings.unified && new_tokens >= settings.chunked_below_tokens;
}

bool DecodeIsIdle(const PathSettings& settings, const NodeLoad& load) {
  if (load.decoding > 0 || load.prefilling > 0) return false;
  return !load.decode_idle || *load.decode_idle >= settings.decode_idle_window;
}

PathChoice ChoosePath(const PathSettings& settings, const NodeLoad& load, uint32_t new_tokens, bool prefill_up,
                      const PathForecast& forecast, std::optional<PromptWay> asked) {
  const auto choice = [&](PrefillPath path, std::optional<PromptWay> way, std::string reason) {
    if (path == PrefillPath::kChunked) way = PromptWay::kChunked;
    return PathChoice{.path = path, .way = way, .reason = std::move(reason), .load = Describe(load, forecast)};
  };
  const PrefillPath in_prefill = DecodeIsIdle(settings, load) ? PrefillPath::kWholeMachine : PrefillPath::kSplit;
  if (asked) {
    return choice(*asked == PromptWay::kChunked ? PrefillPath::kChunked : in_prefill, asked,
                  absl::StrFormat("%u new tokens, %s as asked", new_tokens, WayName(*asked)));
  }
  if (settings.unified) {
    return choice(PrefillPath::kChunked, std::nullopt, absl::StrFormat("%u new tokens, unified mode", new_tokens));
  }
  const bool is_long = IsForPrefill(settings, new_tokens);
  const std::optional<double> chunked = forecast.of(PromptWay::kChunked);
  const std::optional<PromptWay> way = FasterInPrefill(forecast);
  if (settings.predicted && prefill_up && chunked && way) {
    const double prefill = *forecast.of(*way);
    const bool goes_to_prefill = is_long ? !IsWorthIt(*chunked, prefill) : IsWorthIt(prefill, *chunked);
    const std::string reason =
        absl::StrCat(PredictedReason(forecast, new_tokens, *way), ", ", LoadReason(settings, load));
    return goes_to_prefill ? choice(in_prefill, way, reason) : choice(PrefillPath::kChunked, std::nullopt, reason);
  }
  if (!is_long) {
    return choice(PrefillPath::kChunked, std::nullopt,
                  absl::StrFormat("%u new tokens < %u", new_tokens, settings.chunked_below_tokens));
  }
  const std::string size = absl::StrFormat("%u new tokens >= %u", new_tokens, settings.chunked_below_tokens);
  if (!prefill_up) return choice(PrefillPath::kChunked, std::nullopt, size + ", but prefill is down");
  return choice(in_prefill, std::nullopt, absl::StrCat(size, ", ", LoadReason(settings, load)));
}

std::vector<Role> NeededRoles(const PathSettings& settings) {
  if (settings.unified) return {Role::kDecode};
  return {kServingRoles.begin(), kServingRoles.end()};
}

}  // namespace moestro::router
