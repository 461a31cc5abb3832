// What the roles say prompts take, corrected by what prompts took. Not thread-safe; knows no clock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/inference/prompt_costs.h"
#include "services/router/admission/roles.h"

namespace moestro::router {

class CostBook {
 public:
  // The role's figures from now on; none: it has gone, or has measured nothing. Takes those of the role's own ways.
  // New figures begin without correction; the same ones again change nothing.
  void Set(Role role, const std::vector<PromptCost>& costs);

  struct Prompt {
    uint32_t new_tokens = 0;
    uint32_t cached_tokens = 0;
  };
  // Seconds of the prompt on a way by itself. alone, decoding: as PromptCost has them; of figures for other numbers of
  // sequences, those of the next larger number. nullopt: not known, or too long.
  std::optional<double> Seconds(PromptWay way, const Prompt& prompt, bool alone, uint32_t decoding) const;

  // What figures are multiplied with, by what prompts took: within [1/kMostCorrection, kMostCorrection].
  double correction(PromptWay way) const { return corrections_[static_cast<size_t>(way)]; }
  // A prompt took `ratio` times what was predicted with the correction of that moment. Moves the correction a part of
  // the way. Ratios that are no positive numbers are ignored.
  void Note(PromptWay way, double ratio);
  // A prompt went `way`. The corrections of all others fade, so that one that came from a busy hour is tried again.
  void NoteChoice(PromptWay way);

  static constexpr double kMostCorrection = 4;

 private:
  std::array<std::vector<PromptCost>, kPromptWays.size()> costs_;
  std::array<double, kPromptWays.size()> corrections_{1, 1, 1};
};

}  // namespace moestro::router
