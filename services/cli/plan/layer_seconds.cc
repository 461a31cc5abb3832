#include "services/cli/plan/layer_seconds.h"

#include <algorithm>
#include <vector>

#include "common/roofline/work_count.h"
#include "common/tensor/dtype.h"

namespace moestro::cli {
namespace {

constexpr int64_t kMostRows = 4096;  // behind which seconds are proportional to rows

}  // namespace

LayerSeconds::LayerSeconds(const roofline::Machine& machine, const weights::ModelSpec& spec, double bytes_a_weight)
    : machine_(machine), bytes_a_weight_(bytes_a_weight) {
  const roofline::LayerCount layer = roofline::CountModel(spec, DType::kBF16).layers.back();
  expert_weights_ = layer.expert.elements;
  rest_weights_ = layer.attention.elements + layer.dense.elements;
}

double LayerSeconds::Seconds(const roofline::Level& level, double weights, double rows) const {
  return std::max(2 * weights * rows / level.flops_per_second,
                  weights * bytes_a_weight_ / level.memory_bytes_per_second);
}

experts::ExpertCosts LayerSeconds::Costs(int64_t rows) const {
  std::vector<double> host, device;
  for (int64_t n = 1; n <= kMostRows; n *= 2) {
    host.push_back(Expert(machine_.host, static_cast<double>(n)));
    device.push_back(Expert(machine_.device, static_cast<double>(n)));
  }
  return {.host = experts::SecondsByRows(host),
          .device = experts::SecondsByRows(device),
          .load = Load(),
          .between = Rest(machine_.device, static_cast<double>(rows))};
}

}  // namespace moestro::cli
