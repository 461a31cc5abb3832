// Instruction sets that this CPU has and whose registers this operating system saves on a context switch.
#pragma once

#include <cpuid.h>

namespace moestro {

// A flag is true only if the CPU has the instructions and the operating system saves their registers.
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx_vnni = false;     // 256-bit vpdpbusd without AVX-512, and avx2
  bool avx512 = false;       // AVX-512 F, BW, VL and DQ, and FMA
  bool avx512_vbmi = false;  // byte permutes across 64 bytes
  bool avx512_gfni = false;  // products of bits with 8 x 8 bit matrices, in bytes
  bool avx512_bf16 = false;  // vdpbf16ps
  bool avx512_vnni = false;  // vpdpbusd
  bool amx_bf16 = false;     // AMX tiles and tdpbf16ps; each process must request permission (tiles.h)
  bool amx_int8 = false;     // AMX tiles and tdpbusd
};

// CPUID's bit, which Clang 14 cannot ask its run-time library for.
inline bool CpuidHasAvxVnni() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1u << 4) != 0;
}

// Features of the CPU that runs this process, from the compiler's run-time library (CPUID and XCR0). Thread-safe.
inline CpuFeatures DetectCpuFeatures() {
  const bool fma = __builtin_cpu_supports("fma");
  CpuFeatures features;
  features.avx2 = fma && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  features.avx_vnni = features.avx2 && CpuidHasAvxVnni();
  features.avx512 = fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  features.avx512_vbmi = features.avx512 && __builtin_cpu_supports("avx512vbmi");
  features.avx512_gfni = features.avx512 && __builtin_cpu_supports("gfni");
  features.avx512_bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16");
  features.avx512_vnni = features.avx512 && __builtin_cpu_supports("avx512vnni");
  features.amx_bf16 = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16");
  features.amx_int8 = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8");
  return features;
}

}  // namespace moestro
