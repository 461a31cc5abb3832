#include "common/experts/domains/costs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace moestro::experts {
namespace {

// An expert of 100 weights and 200 bytes on four DIMMs. Over the bus 20 s, by the host 2 s striped and 4 s localised,
// by its DIMM 1 s.
constexpr DomainRates kRates = {.gpu = {4000, 400},
                                .cpu = {1000, 100},
                                .dimm = {100, 200},
                                .dimms = 4,
                                .dimm_host_bytes_per_second = 50,
                                .bus_bytes_per_second = 10,
                                .link_bytes_per_second = 50};
constexpr ExpertPlace kStriped = {}, kHeld = {.slot = 3}, kLocalised = {.dimm = 2};

TEST(DomainCosts, HeldExpertsTakeWhatTheDeviceComputes) {
  const DomainCosts costs = CostsOf(kRates, 100, 200, Contention::kInternal);
  EXPECT_DOUBLE_EQ(SecondsOf(costs, 1, kHeld).gpu, 0.5) << "its weights are read";
  EXPECT_DOUBLE_EQ(SecondsOf(costs, 100, kHeld).gpu, 100 * 200.0 / 4000);
}

TEST(DomainCosts, MissedExpertsTakeTheLongestOfComputingBusAndMemory) {
  const DomainCosts costs = CostsOf(kRates, 100, 200, Contention::kInternal);
  EXPECT_DOUBLE_EQ(SecondsOf(costs, 1, kStriped).gpu, 20) << "bus";
  EXPECT_DOUBLE_EQ(SecondsOf(costs, 1000, kStriped).gpu, 50) << "computing";
  DomainRates quick_bus = kRates;
  quick_bus.bus_bytes_per_second = 1000;
  const DomainCosts quick = CostsOf(quick_bus, 100, 200, Contention::kInternal);
  EXPECT_DOUBLE_EQ(SecondsOf(quick, 1, kStriped).gpu, 2) << "all DIMMs";
  EXPECT_DOUBLE_EQ(SecondsOf(quick, 1, kLocalised).gpu, 4) << "one DIMM";
}

TEST(DomainCosts, TheCpuComputesOrReads) {
  const DomainCosts costs = CostsOf(kRates, 100, 200, Contention::kInternal);
  EXPECT_DOUBLE_EQ(SecondsOf(costs, 1, kStriped).cpu, 2);
  EXPECT_DOUBLE_EQ(SecondsOf(costs, 1, kLocalised).cpu, 4);
  EXPECT_DOUBLE_EQ(SecondsOf(costs, 50, kStriped).cpu, 10);
}

TEST(DomainCosts, ADimmComputesWhatItHas) {
  const DomainCosts costs = CostsOf(kRates, 100, 200, Contention::kInternal);
  EXPECT_DOUBLE_EQ(SecondsOf(costs, 1, kLocalised).near, 2);
  EXPECT_TRUE(std::isinf(SecondsOf(costs, 1, kStriped).near));
  DomainRates slow_memory = kRates;
  slow_memory.dimm.bytes_per_second = 20;
  EXPECT_DOUBLE_EQ(SecondsOf(CostsOf(slow_memory, 100, 200, Contention::kInternal), 1, kLocalised).near, 10);
}

// Both readings of what a read takes from a DIMM's processor.
TEST(DomainCosts, ContentionAtTheInternalRateOrTheHosts) {
  const DomainCosts internal = CostsOf(kRates, 100, 200, Contention::kInternal);
  EXPECT_DOUBLE_EQ(internal.busy_striped, 50.0 / 200);
  EXPECT_DOUBLE_EQ(internal.busy_localised, 200.0 / 200);
  const DomainCosts host = CostsOf(kRates, 100, 200, Contention::kHost);
  EXPECT_DOUBLE_EQ(host.busy_striped, 50.0 / 50);
  EXPECT_DOUBLE_EQ(host.busy_localised, 200.0 / 50);
  EXPECT_DOUBLE_EQ(host.link, 4);
}

}  // namespace
}  // namespace moestro::experts
