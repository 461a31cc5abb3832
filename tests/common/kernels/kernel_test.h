// Shared by kernel tests: one test instance per compiled instruction set, random numbers, rounding bounds.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/kernels/cpu/kernels.h"
#include "common/tensor/dtype.h"
#include "tests/support/tables_to_test.h"

namespace moestro {

// The table of that name, or null if this CPU lacks the instructions.
inline const CpuKernels* FindKernels(std::string_view isa) {
  for (const CpuKernels* kernels : AvailableKernels()) {
    if (kernels->isa == isa) return kernels;
  }
  return nullptr;
}

// The tables that differ from the one before in coded inputs only (dispatch_test.cc).
inline constexpr std::string_view kCodedTables[] = {"avx_vnni", "avx512_vnni"};

// From the portable one to the best; with OnlyTheBestTables() these two.
inline std::vector<std::string_view> TablesWithTheirOwnLinear() {
  std::vector<std::string_view> tables = CompiledKernels();
  for (const std::string_view coded : kCodedTables) std::erase(tables, coded);
  if (!OnlyTheBestTables()) return tables;
  std::erase_if(tables, [](std::string_view isa) { return FindKernels(isa) == nullptr; });
  if (tables.size() > 2) tables.erase(tables.begin() + 1, tables.end() - 1);
  return tables;
}

// Runs for each of these tables; reports SKIPPED if the CPU lacks it.
class KernelTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    kernels_ = FindKernels(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "this CPU lacks the instructions of " << GetParam();
    ASSERT_EQ(kernels_->isa, GetParam());
  }
  const CpuKernels* kernels_ = nullptr;
};

inline std::string IsaName(const testing::TestParamInfo<std::string_view>& info) { return std::string(info.param); }

#define MOE_INSTANTIATE_PER_ISA(suite) \
  INSTANTIATE_TEST_SUITE_P(Isa, suite, testing::ValuesIn(TablesWithTheirOwnLinear()), IsaName)

// Rounding bounds after Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1: n roundings in a chain
// change the result by at most Gamma(n) times the sum of the absolute terms.
inline constexpr double kUnitF32 = 0x1p-24;  // half a unit of the last place, relative
inline constexpr double kUnitBf16 = 0x1p-8;  // the same for BF16
inline constexpr double kSmallestNormal = 0x1p-126;
inline double Gamma(double n) { return n * kUnitF32 / (1 - n * kUnitF32); }

inline std::vector<float> RandomFloats(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

inline std::vector<uint16_t> RandomBf16(int64_t n, uint32_t seed, float scale = 1.0f) {
  const std::vector<float> floats = RandomFloats(n, seed, scale);
  std::vector<uint16_t> values;
  for (float value : floats) values.push_back(ToBf16(value));
  return values;
}

}  // namespace moestro
