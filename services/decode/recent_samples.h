// The last few measurements of one quantity.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace moestro::decode {

class RecentSamples {
 public:
  void Add(double value) {
    values_[next_ % values_.size()] = value;
    ++next_;
  }

  bool empty() const { return next_ == 0; }

  // Unaffected by a few steps in which the machine did other work. REQUIRES: !empty()
  double Median() const { return Ascending(size() / 2); }

  // The second greatest: rarely exceeded, and a single outlier does not move it. REQUIRES: !empty()
  double High() const { return Ascending(size() < 2 ? 0 : size() - 2); }

 private:
  // Few enough to follow a growing context within a second of steps.
  static constexpr size_t kCount = 8;

  size_t size() const { return std::min(next_, values_.size()); }

  double Ascending(size_t rank) const {
    std::array<double, kCount> sorted = values_;
    const auto end = sorted.begin() + static_cast<ptrdiff_t>(size());
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(rank), end);
    return sorted[rank];
  }

  std::array<double, kCount> values_{};
  size_t next_ = 0;
};

}  // namespace moestro::decode
