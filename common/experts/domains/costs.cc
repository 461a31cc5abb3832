#include "common/experts/domains/costs.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"

namespace moestro::experts {
namespace {

// 1, 2, 4, ... rows. Behind the last one time is proportional to the rows, as it is where products decide.
constexpr int kPowers = 14;

SecondsByRows Roofline(double flops_per_row, double flops_per_second, double least) {
  std::vector<double> seconds;
  for (int power = 0; power < kPowers; ++power) {
    seconds.push_back(std::max(least, flops_per_row * static_cast<double>(1 << power) / flops_per_second));
  }
  return SecondsByRows(seconds);
}

}  // namespace

DomainCosts CostsOf(const DomainRates& rates, double elements, double bytes, Contention contention) {
  MOE_CHECK(rates.dimms >= 1 && rates.dimms <= kMostDimms);
  const double flops = 2 * elements;
  const auto dimms = static_cast<double>(rates.dimms);
  const double taken =
      contention == Contention::kInternal ? rates.dimm.bytes_per_second : rates.dimm_host_bytes_per_second;
  return {.dimms = rates.dimms,
          .gpu = Roofline(flops, rates.gpu.flops_per_second, bytes / rates.gpu.bytes_per_second),
          .cpu = Roofline(flops, rates.cpu.flops_per_second, 0),
          .near = Roofline(flops, rates.dimm.flops_per_second, 0),
          .bus = bytes / rates.bus_bytes_per_second,
          .read_striped = bytes / rates.cpu.bytes_per_second,
          .read_localised = bytes / rates.dimm_host_bytes_per_second,
          .near_read = bytes / rates.dimm.bytes_per_second,
          .busy_striped = bytes / dimms / taken,
          .busy_localised = bytes / taken,
          .link = bytes / rates.link_bytes_per_second};
}

ExpertSeconds SecondsOf(const DomainCosts& costs, int32_t rows, ExpertPlace place) {
  const double read = place.striped() ? costs.read_striped : costs.read_localised;
  const double on_gpu = costs.gpu.At(rows);
  return {.gpu = place.held() ? on_gpu : std::max({on_gpu, costs.bus, read}),
          .cpu = std::max(costs.cpu.At(rows), read),
          .near = place.striped() ? std::numeric_limits<double>::infinity()
                                  : std::max(costs.near.At(rows), costs.near_read)};
}

}  // namespace moestro::experts
