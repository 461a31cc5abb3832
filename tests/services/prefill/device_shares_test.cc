#include "services/prefill/device_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::prefill {
namespace {

using testing::ElementsAre;

std::vector<int64_t> Of(const std::vector<double>& seconds) { return SharesOf(seconds); }

TEST(DeviceShares, AreInProportionToSpeed) {
  EXPECT_THAT(Of({1}), ElementsAre(1));
  EXPECT_THAT(Of({1, 2}), ElementsAre(2, 1));
  EXPECT_THAT(Of({0.003, 0.002}), ElementsAre(7, 10));
  EXPECT_THAT(Of({2, 5, 1}), ElementsAre(5, 2, 10));
  EXPECT_THAT(Of({5, 5, 2, 2}), ElementsAre(2, 2, 5, 5));
}

TEST(DeviceShares, WhatAMeasurementIsOffMakesNoDifference) {
  EXPECT_THAT(Of({1, 1.1}), ElementsAre(1, 1));
  EXPECT_THAT(Of({1.05, 1, 1.1}), ElementsAre(1, 1, 1));
  EXPECT_THAT(Of({1, 2.2, 2.02, 2.1}), ElementsAre(2, 1, 1, 1)) << "the fastest of the slower ones speaks for them";
  EXPECT_THAT(Of({1, 1.12}), ElementsAre(10, 9));
}

TEST(DeviceShares, ASlowDeviceHasAPart) { EXPECT_THAT(Of({1, 500}), ElementsAre(10, 1)); }

}  // namespace
}  // namespace moestro::prefill
