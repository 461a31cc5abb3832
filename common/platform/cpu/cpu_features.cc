#include "common/platform/cpu/cpu_features.h"

#include <cpuid.h>

namespace moestro {
namespace {

constexpr bool Bit(uint64_t word, int bit) { return (word >> bit & 1) != 0; }

// Bit positions from the CPUID description in the Intel SDM, volume 2A.
constexpr int kFma = 12;              // leaf 1 ECX
constexpr int kOsXsave = 27;          // leaf 1 ECX: XGETBV may be used
constexpr int kF16c = 29;             // leaf 1 ECX
constexpr int kAvx2 = 5;              // leaf 7 EBX
constexpr int kAvx512F = 16;          // leaf 7 EBX
constexpr int kAvx512Dq = 17;         // leaf 7 EBX
constexpr int kAvx512Bw = 30;         // leaf 7 EBX
constexpr int kAvx512Vl = 31;         // leaf 7 EBX
constexpr int kAvx512Vbmi = 1;        // leaf 7 ECX
constexpr int kGfni = 8;              // leaf 7 ECX
constexpr int kAmxBf16 = 22;          // leaf 7 EDX
constexpr int kAmxTile = 24;          // leaf 7 EDX
constexpr int kAvx512Bf16 = 5;        // leaf 7.1 EAX
constexpr uint64_t kYmm = 0x06;       // XCR0: SSE and AVX state
constexpr uint64_t kZmm = 0xe6;       // and opmask, upper halves of ZMM0-15, ZMM16-31
constexpr uint64_t kTiles = 0x60000;  // XCR0: tile configuration and tile data

uint64_t ReadXcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

}  // namespace

CpuidWords ReadCpuid() {
  CpuidWords words;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) words.leaf1_ecx = ecx;
  if (Bit(words.leaf1_ecx, kOsXsave)) words.xcr0 = ReadXcr0();
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
    words.leaf7_ebx = ebx;
    words.leaf7_ecx = ecx;
    words.leaf7_edx = edx;
    const uint32_t last_subleaf = eax;
    if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) words.leaf7_1_eax = eax;
  }
  return words;
}

CpuFeatures InterpretCpuid(const CpuidWords& words) {
  CpuFeatures features;
  const bool fma = Bit(words.leaf1_ecx, kFma);
  const bool xsave = Bit(words.leaf1_ecx, kOsXsave);
  const bool saves_ymm = xsave && (words.xcr0 & kYmm) == kYmm;
  const bool saves_zmm = xsave && (words.xcr0 & kZmm) == kZmm;
  features.avx2 = saves_ymm && fma && Bit(words.leaf1_ecx, kF16c) && Bit(words.leaf7_ebx, kAvx2);
  features.avx512 = saves_zmm && fma && Bit(words.leaf7_ebx, kAvx512F) && Bit(words.leaf7_ebx, kAvx512Bw) &&
                    Bit(words.leaf7_ebx, kAvx512Vl) && Bit(words.leaf7_ebx, kAvx512Dq);
  features.avx512_vbmi = features.avx512 && Bit(words.leaf7_ecx, kAvx512Vbmi);
  features.avx512_gfni = features.avx512 && Bit(words.leaf7_ecx, kGfni);
  features.avx512_bf16 = features.avx512 && Bit(words.leaf7_1_eax, kAvx512Bf16);
  features.amx_bf16 =
      xsave && (words.xcr0 & kTiles) == kTiles && Bit(words.leaf7_edx, kAmxTile) && Bit(words.leaf7_edx, kAmxBf16);
  return features;
}

}  // namespace moestro
