// What a row chose, for tests of those that count choices.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/moe/gating.h"

namespace moestro::experts {

// These experts, of equal weight.
inline std::vector<model::ExpertChoice> Choices(const std::vector<int32_t>& ids) {
  std::vector<model::ExpertChoice> choices;
  for (const int32_t id : ids) choices.push_back({id, 0.5f});
  return choices;
}

}  // namespace moestro::experts
