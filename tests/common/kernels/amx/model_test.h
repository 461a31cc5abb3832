// Kernel tests that also run the `amx` kernels on a scalar model of the tiles, so that a CPU without tiles can test
// them.
#pragma once

#include "tests/common/kernels/kernel_test.h"
#include "tests/support/test_kernels.h"

namespace moestro {

class KernelOrModelTest : public KernelTest {
 protected:
  void SetUp() override {
    if (GetParam() != kAmxOnModel) return KernelTest::SetUp();
    kernels_ = AmxOnModel();
    if (kernels_ == nullptr) GTEST_SKIP() << "this CPU lacks AVX-512 with VBMI and GFNI";
  }
};

#define MOE_INSTANTIATE_ON_MODEL(suite) INSTANTIATE_TEST_SUITE_P(Model, suite, testing::Values(kAmxOnModel), IsaName)

}  // namespace moestro
