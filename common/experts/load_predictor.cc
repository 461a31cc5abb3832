#include "common/experts/load_predictor.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"

namespace moestro::experts {
namespace {

constexpr float kLargest = 65504;

}  // namespace

LoadPredictor::LoadPredictor(int64_t layers, int64_t experts)
    : experts_(experts),
      averages_(static_cast<size_t>(layers * experts), ToF16(std::numeric_limits<float>::quiet_NaN())) {}

void LoadPredictor::Update(int64_t layer, std::span<const int32_t> rows) {
  MOE_CHECK(std::ssize(rows) == experts_);
  const bool first = !Knows(layer);
  for (int64_t expert = 0; expert < experts_; ++expert) {
    const float load = std::min(static_cast<float>(rows[static_cast<size_t>(expert)]), kLargest);
    const float average = first ? load : At(layer, expert) + kNewest * (load - At(layer, expert));
    averages_[static_cast<size_t>(layer * experts_ + expert)] = ToF16(average);
  }
}

}  // namespace moestro::experts
