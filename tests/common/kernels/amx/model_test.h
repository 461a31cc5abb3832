// Kernel tests that also run the kernels of `amx` on a scalar model of its tiles: what a CPU without tiles can test of
// them.
#pragma once

#include <string_view>

#include "common/platform/cpu/cpu_features.h"
#include "tests/common/kernels/amx/on_model.h"
#include "tests/common/kernels/kernel_test.h"

namespace moestro {

inline constexpr std::string_view kAmxOnModel = "amx_on_model";

// Null where the CPU lacks the vector instructions.
inline const CpuKernels* AmxOnModel() {
  const CpuFeatures cpu = DetectCpuFeatures();
  if (!cpu.avx512_vbmi || !cpu.avx512_gfni) return nullptr;
  static const CpuKernels table = [] {
    CpuKernels kernels = *FindKernels("avx512");
    kernels.isa = kAmxOnModel;
    kernels.linear = amx::LinearOnModel;
    kernels.linear_add = amx::LinearAddOnModel;
    kernels.attend_token = amx::AttendTokenOnModel;
    return kernels;
  }();
  return &table;
}

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
