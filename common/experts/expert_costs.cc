#include "common/experts/expert_costs.h"

#include <bit>
#include <cstddef>

namespace moestro::experts {

double SecondsByRows::At(int64_t rows) const {
  if (seconds_.empty()) return 0;
  const auto power = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows)) - 1);
  const auto over = static_cast<double>(rows) / static_cast<double>(int64_t{1} << power);  // 1 to 2
  if (power + 1 < seconds_.size()) return (2 - over) * seconds_[power] + (over - 1) * seconds_[power + 1];
  return seconds_.back() * static_cast<double>(rows) / static_cast<double>(int64_t{1} << (seconds_.size() - 1));
}

}  // namespace moestro::experts
