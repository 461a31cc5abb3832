// Kernel tests that also run stand-ins for tables of other CPUs: the `amx` kernels on a scalar model of the tiles, and
// those of `avx_vnni` in the encoding of AVX-512.
#pragma once

#include "tests/common/kernels/kernel_test.h"
#include "tests/support/test_kernels.h"

namespace moestro {

class KernelOrModelTest : public KernelTest {
 protected:
  void SetUp() override {
    if (GetParam() == kAmxOnModel) {
      kernels_ = AmxOnModel();
      if (kernels_ == nullptr) GTEST_SKIP() << "this CPU lacks AVX-512 with VBMI, VNNI and GFNI";
    } else if (GetParam() == kAvxVnniInEvex) {
      kernels_ = AvxVnniInEvex();
      if (kernels_ == nullptr) GTEST_SKIP() << "this CPU lacks AVX512_VNNI";
    } else {
      KernelTest::SetUp();
    }
  }
};

#define MOE_INSTANTIATE_ON_MODEL(suite) INSTANTIATE_TEST_SUITE_P(Model, suite, testing::Values(kAmxOnModel), IsaName)

// The tables that differ from others in coded inputs only.
#define MOE_INSTANTIATE_CODED(suite)                                                \
  INSTANTIATE_TEST_SUITE_P(Coded, suite, testing::ValuesIn(kCodedTables), IsaName); \
  INSTANTIATE_TEST_SUITE_P(CodedInEvex, suite, testing::Values(kAvxVnniInEvex), IsaName)

}  // namespace moestro
