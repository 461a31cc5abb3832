#include "common/kernels/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <tuple>

#include "tests/common/kernels/kernel_test.h"
#include "tests/support/test_kernels.h"

namespace moestro {
namespace {

using ::testing::HasSubstr;

class SelectKernelsTest : public testing::Test {
 protected:
  void TearDown() override { unsetenv("MOESTRO_ISA"); }
};

TEST_F(SelectKernelsTest, BestAvailableByDefault) {
  unsetenv("MOESTRO_ISA");
  ASSERT_TRUE(SelectKernels().ok());
  EXPECT_EQ(*SelectKernels(), AvailableKernels().back());
  setenv("MOESTRO_ISA", "", 1);
  EXPECT_EQ(*SelectKernels(), AvailableKernels().back());
}

TEST_F(SelectKernelsTest, EachAvailableOneCanBeForced) {
  for (const CpuKernels* kernels : AvailableKernels()) {
    setenv("MOESTRO_ISA", std::string(kernels->isa).c_str(), 1);
    ASSERT_TRUE(SelectKernels().ok());
    EXPECT_EQ(*SelectKernels(), kernels);
  }
}

TEST_F(SelectKernelsTest, ATableWithASetting) {
  unsetenv("MOESTRO_ISA");
  const absl::StatusOr<CpuKernels> kernels = SelectKernels(Int8Activations::kAll);
  ASSERT_TRUE(kernels.ok());
  EXPECT_EQ(kernels->int8_activations, Int8Activations::kAll);
  EXPECT_EQ(kernels->linear, AvailableKernels().back()->linear);
  EXPECT_EQ(AvailableKernels().back()->int8_activations, Int8Activations::kPublished) << "the original has its own";
  setenv("MOESTRO_ISA", "avx1024", 1);
  EXPECT_FALSE(SelectKernels(Int8Activations::kAll).ok());
}

TEST_F(SelectKernelsTest, UnknownNameIsInvalidAndListsTheKnownOnes) {
  setenv("MOESTRO_ISA", "avx1024", 1);
  const auto selected = SelectKernels();
  EXPECT_EQ(selected.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(selected.status().message()), HasSubstr("MOESTRO_ISA=avx1024"));
  for (std::string_view isa : CompiledKernels()) {
    EXPECT_THAT(std::string(selected.status().message()), HasSubstr(std::string(isa)));
  }
}

TEST(ChooseKernels, ForcedButAbsentIsAnErrorAndNeverAFallback) {
  for (std::string_view isa : CompiledKernels()) {
    if (isa == "ref") continue;
    const auto chosen = ChooseKernels(isa, {AvailableKernels().front()}, CompiledKernels());
    EXPECT_EQ(chosen.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(chosen.status().message()), HasSubstr("MOESTRO_ISA=" + std::string(isa) + ": this CPU"));
  }
}

TEST(CompiledKernels, SlowestFirst) {
  EXPECT_THAT(CompiledKernels(),
              testing::ElementsAre("ref", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"));
}

// CTest runs the tests for every table but those of coded inputs.
TEST(CompiledKernels, AllAreInTheListOfTests) {
  std::string names, coded;
  for (std::string_view isa : CompiledKernels()) names.append(isa).append(" ");
  for (std::string_view isa : kCodedTables) coded.append(isa).append(" ");
  EXPECT_EQ(TEST_ISAS, names.append(kAmxOnModel).append(" ").append(kAvxVnniInEvex));
  EXPECT_EQ(CODED_ISAS, coded.append(kAvxVnniInEvex));
}

// All tables that a CPU can run are compiled in, in the same order.
TEST(AvailableKernels, SlowestFirst) {
  const std::vector<std::string_view> compiled = CompiledKernels();
  auto next = compiled.begin();
  for (const CpuKernels* kernels : AvailableKernels()) {
    next = std::find(next, compiled.end(), kernels->isa);
    ASSERT_NE(next, compiled.end()) << kernels->isa;
  }
}

TEST(AvailableKernels, AreCompiledCompleteAndDistinct) {
  const std::vector<const CpuKernels*> available = AvailableKernels();
  ASSERT_FALSE(available.empty());
  EXPECT_EQ(available.front()->isa, "ref");
  for (const CpuKernels* kernels : available) {
    EXPECT_THAT(CompiledKernels(), testing::Contains(kernels->isa));
    EXPECT_TRUE(kernels->linear && kernels->linear_add && kernels->router_logits && kernels->rms_norm &&
                kernels->layer_norm && kernels->silu_mul && kernels->clamped_swiglu && kernels->to_bf16 &&
                kernels->axpy && kernels->axpby && kernels->pack_keys && kernels->pack_values && kernels->softmax_step)
        << kernels->isa;
    EXPECT_EQ(kernels->attend_token != nullptr, kernels->isa == "amx" || kernels->isa == "avx512_bf16") << kernels->isa;
  }
  for (size_t i = 1; i < available.size(); ++i) EXPECT_NE(available[i]->linear_coded, available[i - 1]->linear_coded);
}

// So only tests of coded inputs need run these tables.
TEST(AvailableKernels, CodedTablesDifferFromTheOneBeforeInCodedInputsOnly) {
  const std::vector<const CpuKernels*> available = AvailableKernels();
  const auto others = [](const CpuKernels& k) {
    return std::tie(k.linear, k.linear_add, k.router_logits, k.rms_norm, k.layer_norm, k.silu_mul, k.clamped_swiglu,
                    k.to_bf16, k.axpy, k.axpby, k.pack_keys, k.pack_values, k.softmax_step, k.attend_token);
  };
  for (size_t i = 1; i < available.size(); ++i) {
    const bool coded = std::ranges::count(kCodedTables, available[i]->isa) > 0;
    EXPECT_EQ(others(*available[i]) == others(*available[i - 1]), coded) << available[i]->isa;
  }
}

}  // namespace
}  // namespace moestro
