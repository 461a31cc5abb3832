#include "common/experts/cache_policy.h"

#include <algorithm>
#include <utility>

namespace moestro::experts {

void LruPolicy::Use(std::span<const ExpertUse> uses) {
  ++pass_;
  for (const ExpertUse& use : uses) last_pass_[static_cast<size_t>(use.expert)] = pass_;
}

int32_t LruPolicy::Victim(std::span<const int32_t> held) const {
  return *std::ranges::min_element(
      held, {}, [this](int32_t expert) { return std::pair(last_pass_[static_cast<size_t>(expert)], expert); });
}

}  // namespace moestro::experts
