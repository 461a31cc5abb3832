#include "services/decode/overlap/cost_model.h"

#include <algorithm>
#include <cmath>

#include "common/engine/decode_compute.h"

namespace moestro::decode {
namespace {

// a + (b - a) * part
LayerTimes Between(const LayerTimes& a, const LayerTimes& b, double part) {
  return {.attend = std::lerp(a.attend, b.attend, part),
          .shared = std::lerp(a.shared, b.shared, part),
          .experts = std::lerp(a.experts, b.experts, part),
          .transfer = std::lerp(a.transfer, b.transfer, part),
          .sync = std::lerp(a.sync, b.sync, part)};
}

}  // namespace

double StepSeconds(std::span<const LayerTimes> lanes, int64_t layers) {
  double device_free = 0;
  double cpu_free = 0;
  double ready[engine::kMaxLanes] = {};  // the lane's sums are on the device
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (size_t i = 0; i < lanes.size(); ++i) {
      const LayerTimes& times = lanes[i];
      const double attended = std::max(ready[i], device_free) + times.attend;
      device_free = attended + times.shared;
      cpu_free = std::max(attended + times.transfer / 2 + times.sync, cpu_free) + times.experts;
      ready[i] = cpu_free + times.transfer / 2;
    }
  }
  return std::max(device_free, *std::max_element(ready, ready + lanes.size()));
}

LayerTimes CostModel::At(int64_t rows) const {
  const auto above = std::ranges::lower_bound(points_, rows, {}, &Point::rows);
  if (above == points_.end()) {
    return Between({}, points_.back().times, static_cast<double>(rows) / static_cast<double>(points_.back().rows));
  }
  if (above->rows == rows || above == points_.begin()) return above->times;
  const Point& below = *(above - 1);
  return Between(below.times, above->times,
                 static_cast<double>(rows - below.rows) / static_cast<double>(above->rows - below.rows));
}

void CostModel::AddTo(experts::ExpertCosts& costs) const {
  std::vector<double> shared;
  for (int64_t rows = 1; rows <= points_.back().rows; rows *= 2) shared.push_back(At(rows).shared);
  costs.shared = experts::SecondsByRows(std::move(shared));
  const LayerTimes layer = At(1);
  costs.between = layer.attend + layer.transfer;
}

double CostModel::OneBatch(int64_t rows) const {
  LayerTimes lanes[] = {At(rows)};
  if (spins_) lanes[0].sync = 0;
  return StepSeconds(lanes, layers_);
}

double CostModel::TwoBatches(int64_t first, int64_t second) const {
  const LayerTimes lanes[] = {At(first), At(second)};
  return StepSeconds(lanes, layers_);
}

}  // namespace moestro::decode
