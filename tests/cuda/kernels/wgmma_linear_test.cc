// FP8 weights by products of groups of warps.
#include <gtest/gtest.h>

#include "common/kernels/cuda/linear.h"
#include "tests/cuda/kernels/linear_checks.h"

namespace moestro::cuda {
namespace {

class CudaWarpGroupsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!SetWarpGroups(true)) GTEST_SKIP() << DeviceName() << " has no products of groups of warps";
  }
  void TearDown() override { SetWarpGroups(false); }
};

TEST_F(CudaWarpGroupsTest, AgainstDouble) {
  CheckDense(DType::kF8E4M3, 1, 1, 17);
  CheckDense(DType::kF8E4M3, 63, 127, 18);
  CheckDense(DType::kF8E4M3, 130, 4, 17);
  CheckDense(DType::kF8E4M3, 129, 260, 129);
  CheckDense(DType::kF8E4M3, 65, 1001, 19);  // more stages than in flight, and than in a round
}

TEST_F(CudaWarpGroupsTest, AllCodesAreExact) { CheckAllFp8Codes(); }

TEST_F(CudaWarpGroupsTest, AddsAndRoundsAsAsked) { CheckOutputs(20); }

TEST_F(CudaWarpGroupsTest, GroupsOfAnySize) { CheckGrouped(DType::kF8E4M3, kLargeTile, {0, 129, 0, 2, 0}, 68, 132); }

TEST_F(CudaWarpGroupsTest, ABlockComputesSeveralTilesOfGroups) {
  CheckSeveralTilesOfGroups(DeviceName() == "emulation" ? 3 : 150);
}

TEST_F(CudaWarpGroupsTest, GateAndUpTogether) {
  CheckGateUp(DType::kF8E4M3, 192, 260, 17);
  CheckGateUp(DType::kF8E4M3, 65, 132, 131);
}

// A small tile's products are those of warps.
TEST_F(CudaWarpGroupsTest, BitsDoNotDependOnTheTile) {
  for (const int64_t cols : {300, 1301}) CheckTiles(DType::kF8E4M3, cols);
}

}  // namespace
}  // namespace moestro::cuda
