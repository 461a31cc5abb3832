// FP8 weights in large tiles, by products of warps and by those of groups of warps.
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/kernels/cuda/linear.h"
#include "tests/cuda/kernels/linear_checks.h"

namespace moestro::cuda {
namespace {

class CudaFp8WeightsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!SetWarpGroups(GetParam())) GTEST_SKIP() << DeviceName() << " has no products of groups of warps";
  }
  void TearDown() override { ResetWarpGroups(); }
};
INSTANTIATE_TEST_SUITE_P(Of, CudaFp8WeightsTest, ::testing::Bool(),
                         [](const auto& groups) { return groups.param ? "WarpGroups" : "Warps"; });

TEST_P(CudaFp8WeightsTest, AgainstDouble) {
  CheckDense(DType::kF8E4M3, 1, 1, 17);
  CheckDense(DType::kF8E4M3, 63, 127, 18);
  CheckDense(DType::kF8E4M3, 130, 4, 17);
  CheckDense(DType::kF8E4M3, 129, 260, 129);
  CheckDense(DType::kF8E4M3, 65, 1001, 19);  // more stages than in flight, and than in a round
}

TEST_P(CudaFp8WeightsTest, AllCodesAreExact) { CheckAllFp8Codes(); }

TEST_P(CudaFp8WeightsTest, AddsAndRoundsAsAsked) { CheckOutputs(20); }

TEST_P(CudaFp8WeightsTest, GroupsOfAnySize) { CheckGrouped(DType::kF8E4M3, kLargeTile, {0, 129, 0, 2, 0}, 68, 132); }

TEST_P(CudaFp8WeightsTest, ABlockComputesSeveralTilesOfGroups) {
  CheckSeveralTilesOfGroups(DeviceName() == "emulation" ? 3 : 150);
}

TEST_P(CudaFp8WeightsTest, GateAndUpTogether) {
  CheckGateUp(DType::kF8E4M3, 192, 260, 17);
  CheckGateUp(DType::kF8E4M3, 65, 132, 131);
}

// A small tile's products are those of warps.
TEST_P(CudaFp8WeightsTest, BitsDoNotDependOnTheTile) {
  for (const int64_t cols : {300, 1301}) CheckTiles(DType::kF8E4M3, cols);
}

TEST(WarpGroupsTest, AreNotTakenWhereTheEnvironmentSaysSo) {
  if (!SetWarpGroups(true)) GTEST_SKIP() << DeviceName() << " has no products of groups of warps";
  EXPECT_TRUE(HasWgmma());
  setenv("MOESTRO_WGMMA", "off", 1);
  EXPECT_FALSE(HasWgmma());
  unsetenv("MOESTRO_WGMMA");
  ResetWarpGroups();
}

}  // namespace
}  // namespace moestro::cuda
