#include "services/router/admission/cost_book.h"

#include <algorithm>
#include <cmath>

namespace moestro::router {
namespace {

constexpr double kWeight = 0.25;        // of a new ratio
constexpr double kKeptOfUnused = 0.98;  // of the logarithm of a correction, with each prompt that goes another way

bool IsOf(Role role, PromptWay way) { return (role == Role::kDecode) == (way == PromptWay::kChunked); }

bool AreEqual(const PromptCost& a, const PromptCost& b) {
  const auto same_point = [](const PromptCost::Point& p, const PromptCost::Point& q) {
    return p.tokens == q.tokens && p.seconds == q.seconds && p.slack == q.slack;
  };
  return a.alone == b.alone && a.decoding == b.decoding && a.seconds_per_pair == b.seconds_per_pair &&
         std::ranges::equal(a.points, b.points, same_point);
}

}  // namespace

void CostBook::Set(Role role, const std::vector<PromptCost>& costs) {
  for (const PromptWay way : kPromptWays) {
    if (!IsOf(role, way)) continue;
    std::vector<PromptCost> own;
    for (const PromptCost& cost : costs) {
      if (cost.way == way && IsPlausible(cost)) own.push_back(cost);
    }
    std::vector<PromptCost>& known = costs_[static_cast<size_t>(way)];
    if (std::ranges::equal(own, known, AreEqual)) continue;
    known = std::move(own);
    corrections_[static_cast<size_t>(way)] = 1;
  }
}

std::optional<double> CostBook::Seconds(PromptWay way, const Prompt& prompt, bool alone, uint32_t decoding) const {
  const PromptCost* best = nullptr;
  const auto distance = [&](const PromptCost& cost) {
    // First those for this number of sequences or more, then those for as many cores.
    const uint32_t others =
        cost.decoding >= decoding ? cost.decoding - decoding : (uint32_t{1} << 30) + decoding - cost.decoding;
    return std::pair(others, cost.alone != alone);
  };
  for (const PromptCost& cost : costs_[static_cast<size_t>(way)]) {
    if (best == nullptr || distance(cost) < distance(*best)) best = &cost;
  }
  if (best == nullptr) return std::nullopt;
  const std::optional<double> seconds = SecondsOf(*best, prompt.new_tokens, prompt.cached_tokens);
  if (!seconds) return std::nullopt;
  return correction(way) * *seconds;
}

void CostBook::Note(PromptWay way, double ratio) {
  if (!(ratio > 0) || !std::isfinite(ratio)) return;
  double& correction = corrections_[static_cast<size_t>(way)];
  correction *= std::pow(std::clamp(ratio, 1 / kMostCorrection, kMostCorrection), kWeight);
  correction = std::clamp(correction, 1 / kMostCorrection, kMostCorrection);
}

void CostBook::NoteChoice(PromptWay way) {
  for (const PromptWay other : kPromptWays) {
    double& correction = corrections_[static_cast<size_t>(other)];
    if (other != way) correction = std::pow(correction, kKeptOfUnused);
  }
}

}  // namespace moestro::router
