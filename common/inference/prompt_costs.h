// How long a prompt takes, by the way that computes it: what the roles that compute prompts tell the router. The
// message of proto/moestro/v1/types.proto without the wire format. common/roofline/prompt_forecast.h makes these
// figures.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace moestro {

// What computes a prompt: decode's steps, in chunks; prefill, where the weights lie; prefill, with weights that stream
// through devices. The first is PrefillPath::kChunked; the others say what the other two paths do.
enum class PromptWay { kChunked = 0, kInPlace = 1, kStreamed = 2 };
inline constexpr std::array<PromptWay, 3> kPromptWays = {PromptWay::kChunked, PromptWay::kInPlace,
                                                         PromptWay::kStreamed};

inline const char* WayName(PromptWay way) {
  if (way == PromptWay::kChunked) return "chunked";
  return way == PromptWay::kInPlace ? "in_place" : "streamed";
}

struct PromptCost {
  struct Point {
    uint32_t tokens = 0;
    double seconds = 0;
    double slack = 0;  // of these, for which kernels only wait for weights: so much more they compute at no cost
  };
  PromptWay way = PromptWay::kChunked;
  // For prompts that have the cores of the other role too; streamed, for those that have the whole machine.
  bool alone = false;
  uint32_t decoding = 0;           // chunked: sequences that generate in the same steps
  std::vector<Point> points = {};  // prompts of which nothing is cached, in ascending order; the last is the longest
  double seconds_per_pair = 0;     // more, for each pair of a new token and a cached one
};

// Bounds of what a message may say.
inline constexpr size_t kMaxCostPoints = 64;
inline constexpr size_t kMaxPromptCosts = 64;
inline constexpr double kMaxCostSeconds = 1e6;

// Whether the numbers can be those of a measurement: points in ascending order, seconds above 0 and finite.
inline bool IsPlausible(const PromptCost& cost) {
  const auto plausible = [](double seconds) { return seconds > 0 && seconds <= kMaxCostSeconds; };
  if (cost.points.empty() || cost.points.size() > kMaxCostPoints) return false;
  if (!(cost.seconds_per_pair >= 0 && cost.seconds_per_pair <= kMaxCostSeconds)) return false;
  uint32_t tokens = 0;
  for (const PromptCost::Point& point : cost.points) {
    if (point.tokens <= tokens || !plausible(point.seconds) || !(point.slack >= 0 && point.slack <= point.seconds)) {
      return false;
    }
    tokens = point.tokens;
  }
  return true;
}

// Seconds of a prompt with `new_tokens` new tokens after `cached_tokens` cached ones. Between two points in proportion,
// below the first one as that. nullopt: so long a prompt cannot go this way. REQUIRES: IsPlausible(cost).
inline std::optional<double> SecondsOf(const PromptCost& cost, uint32_t new_tokens, uint32_t cached_tokens) {
  if (new_tokens > cost.points.back().tokens) return std::nullopt;
  const auto above = std::ranges::lower_bound(cost.points, new_tokens, {}, &PromptCost::Point::tokens);
  PromptCost::Point at = *above;
  if (above != cost.points.begin() && above->tokens != new_tokens) {
    const PromptCost::Point& below = *(above - 1);
    const double share = static_cast<double>(new_tokens - below.tokens) / (above->tokens - below.tokens);
    at.seconds = below.seconds + share * (above->seconds - below.seconds);
    at.slack = below.slack + share * (above->slack - below.slack);
  }
  return at.seconds + std::max(0.0, cost.seconds_per_pair * new_tokens * cached_tokens - at.slack);
}

}  // namespace moestro
