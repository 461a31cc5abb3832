#include "common/platform/cpu/cpu_features.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

// A CPU with everything, on an operating system that saves everything.
CpuidWords Everything() {
  return {
      .leaf1_ecx = ~0u, .leaf7_ebx = ~0u, .leaf7_ecx = ~0u, .leaf7_edx = ~0u, .leaf7_1_eax = ~0u, .xcr0 = ~uint64_t{0}};
}

TEST(CpuFeatures, EverythingAndNothing) {
  const CpuFeatures all = InterpretCpuid(Everything());
  EXPECT_TRUE(all.avx2 && all.avx512 && all.avx512_vbmi && all.avx512_gfni && all.avx512_bf16 && all.amx_bf16);
  const CpuFeatures none = InterpretCpuid({});
  EXPECT_FALSE(none.avx2 || none.avx512 || none.avx512_vbmi || none.avx512_gfni || none.avx512_bf16 || none.amx_bf16);
}

TEST(CpuFeatures, OperatingSystemThatSavesNoZmm) {
  CpuidWords words = Everything();
  words.xcr0 = 0x7;  // x87, SSE, AVX
  const CpuFeatures features = InterpretCpuid(words);
  EXPECT_TRUE(features.avx2);
  EXPECT_FALSE(features.avx512 || features.avx512_vbmi || features.avx512_gfni || features.avx512_bf16);
}

TEST(CpuFeatures, OperatingSystemThatSavesPartOfZmm) {
  for (int missing : {1, 2, 5, 6, 7}) {
    CpuidWords words = Everything();
    words.xcr0 &= ~(uint64_t{1} << missing);
    EXPECT_FALSE(InterpretCpuid(words).avx512) << "XCR0 bit " << missing;
  }
}

TEST(CpuFeatures, WithoutOsXsaveNothingIsUsable) {
  CpuidWords words = Everything();
  words.leaf1_ecx &= ~(1u << 27);
  const CpuFeatures features = InterpretCpuid(words);
  EXPECT_FALSE(features.avx2 || features.avx512 || features.avx512_vbmi || features.avx512_bf16);
}

TEST(CpuFeatures, TilesNeedBothInstructionSetsAndBothStates) {
  for (int bit : {22, 24}) {  // AMX-BF16, AMX-TILE
    CpuidWords words = Everything();
    words.leaf7_edx &= ~(1u << bit);
    EXPECT_FALSE(InterpretCpuid(words).amx_bf16) << "leaf 7 EDX bit " << bit;
  }
  for (int missing : {17, 18}) {  // tile configuration, tile data
    CpuidWords words = Everything();
    words.xcr0 &= ~(uint64_t{1} << missing);
    EXPECT_FALSE(InterpretCpuid(words).amx_bf16) << "XCR0 bit " << missing;
    EXPECT_TRUE(InterpretCpuid(words).avx512_bf16);
  }
}

TEST(CpuFeatures, EachPartOfAvx2IsRequired) {
  for (int bit : {12, 29}) {  // FMA, F16C
    CpuidWords words = Everything();
    words.leaf1_ecx &= ~(1u << bit);
    EXPECT_FALSE(InterpretCpuid(words).avx2) << "leaf 1 ECX bit " << bit;
  }
  CpuidWords no_avx2 = Everything();
  no_avx2.leaf7_ebx &= ~(1u << 5);
  EXPECT_FALSE(InterpretCpuid(no_avx2).avx2);
  for (int missing : {1, 2}) {  // SSE, AVX state
    CpuidWords words = Everything();
    words.xcr0 &= ~(uint64_t{1} << missing);
    EXPECT_FALSE(InterpretCpuid(words).avx2) << "XCR0 bit " << missing;
  }
}

TEST(CpuFeatures, EachAvx512SubsetIsRequired) {
  for (int bit : {16, 17, 30, 31}) {  // F, DQ, BW, VL
    CpuidWords words = Everything();
    words.leaf7_ebx &= ~(1u << bit);
    EXPECT_FALSE(InterpretCpuid(words).avx512) << "leaf 7 EBX bit " << bit;
  }
  CpuidWords no_vbmi = Everything();
  no_vbmi.leaf7_ecx &= ~(1u << 1);
  EXPECT_TRUE(InterpretCpuid(no_vbmi).avx512);
  EXPECT_FALSE(InterpretCpuid(no_vbmi).avx512_vbmi);
  EXPECT_TRUE(InterpretCpuid(no_vbmi).avx512_gfni);
  CpuidWords no_gfni = Everything();
  no_gfni.leaf7_ecx &= ~(1u << 8);
  EXPECT_FALSE(InterpretCpuid(no_gfni).avx512_gfni);
  EXPECT_TRUE(InterpretCpuid(no_gfni).avx512_vbmi);
  CpuidWords no_bf16 = Everything();
  no_bf16.leaf7_1_eax &= ~(1u << 5);
  EXPECT_TRUE(InterpretCpuid(no_bf16).avx512);
  EXPECT_FALSE(InterpretCpuid(no_bf16).avx512_bf16);
}

// The compiler's own detection, made by other people, must agree about this machine.
TEST(CpuFeatures, AgreesWithTheCompiler) {
  const CpuFeatures features = DetectCpuFeatures();
  __builtin_cpu_init();
  EXPECT_EQ(features.avx2,
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"));
  EXPECT_EQ(features.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"));
  EXPECT_EQ(features.avx512_vbmi, features.avx512 && __builtin_cpu_supports("avx512vbmi"));
  EXPECT_EQ(features.avx512_gfni, features.avx512 && __builtin_cpu_supports("gfni"));
  EXPECT_EQ(features.avx512_bf16, features.avx512 && __builtin_cpu_supports("avx512bf16"));
}

}  // namespace
}  // namespace moestro
