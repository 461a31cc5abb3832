// Foresees how many rows use an expert: a moving average of its loads (TriMoE, Eq. 8).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/tensor/dtype.h"

namespace moestro::experts {

// F16 for each layer and expert: 2 bytes. A load above 65504, the largest F16, counts as that.
class LoadPredictor {  // not thread-safe
 public:
  // Weight of the last pass: the paper's alpha, which its authors tuned.
  static constexpr float kNewest = 0.3F;

  LoadPredictor(int64_t layers, int64_t experts);

  // Whether the layer has had an update: without one At is NaN.
  bool Knows(int64_t layer) const { return At(layer, 0) == At(layer, 0); }
  float At(int64_t layer, int64_t expert) const {
    return FromF16(averages_[static_cast<size_t>(layer * experts_ + expert)]);
  }
  // After a pass: its rows by expert. The first pass is the first average.
  void Update(int64_t layer, std::span<const int32_t> rows);
  int64_t bytes() const { return std::ssize(averages_) * static_cast<int64_t>(sizeof(averages_[0])); }

 private:
  const int64_t experts_;
  std::vector<uint16_t> averages_;  // [layers, experts]
};

}  // namespace moestro::experts
