// Ranges cut in proportion to integer shares.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "common/base/math.h"

namespace moestro {

// [0, count) cut into parts: with the sums c of the shares before each part, part p is [count*c[p]/total,
// count*c[p+1]/total). Parts of equal shares are those of EvenPart. This rule alone cuts what the devices of a prompt
// share. A part may be empty.
class ProportionalParts {
 public:
  // One part.
  ProportionalParts() = default;
  // One or more shares, each at least 1. Their sum times any count is below 2^63.
  explicit ProportionalParts(std::span<const int64_t> shares) : sums_{0} {
    MOE_CHECK(!shares.empty());
    for (const int64_t share : shares) {
      MOE_CHECK(share >= 1);
      sums_.push_back(sums_.back() + share);
    }
  }
  static ProportionalParts Even(int64_t parts) {
    return ProportionalParts(std::vector<int64_t>(static_cast<size_t>(parts), 1));
  }

  int64_t parts() const { return std::ssize(sums_) - 1; }
  int64_t share(int64_t part) const { return sums_[static_cast<size_t>(part + 1)] - sums_[static_cast<size_t>(part)]; }
  int64_t total() const { return sums_.back(); }

  IndexRange Part(int64_t count, int64_t part) const {
    return {count * sums_[static_cast<size_t>(part)] / total(), count * sums_[static_cast<size_t>(part + 1)] / total()};
  }
  // The part that holds `index`: the p with Part(count, p).begin <= index < .end. 0 <= index < count.
  int64_t PartOf(int64_t index, int64_t count) const {
    const auto ends = std::span(sums_).subspan(1);
    return std::ranges::partition_point(ends, [&](int64_t sum) { return count * sum / total() <= index; }) -
           ends.begin();
  }

 private:
  std::vector<int64_t> sums_{0, 1};  // of the shares before each part; then of all
};

}  // namespace moestro
