// Which instruction sets this CPU has and this operating system saves on a context switch.
#pragma once

#include <cstdint>

namespace moestro {

// The raw words that tell. Reading them and interpreting them are apart, so that CPUs we do not have can be tested.
struct CpuidWords {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;    // leaf 7, subleaf 0
  uint32_t leaf7_ecx = 0;    // leaf 7, subleaf 0
  uint32_t leaf7_edx = 0;    // leaf 7, subleaf 0
  uint32_t leaf7_1_eax = 0;  // leaf 7, subleaf 1
  uint64_t xcr0 = 0;         // register states that the operating system saves; 0 where OSXSAVE is off
};

// A flag is true only when the CPU has the instructions and the operating system saves the registers they use.
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // AVX-512 F, BW, VL and DQ, and FMA
  bool avx512_vbmi = false;  // byte permutes across 64 bytes
  bool avx512_gfni = false;  // bits of bytes multiplied by 8 x 8 matrices
  bool avx512_bf16 = false;  // vdpbf16ps
  bool amx_bf16 = false;     // AMX tiles and tdpbf16ps; each process must ask to use them (tiles.h)
};

CpuidWords ReadCpuid();
CpuFeatures InterpretCpuid(const CpuidWords& words);

// Of the CPU that runs this process. Thread-safe.
inline CpuFeatures DetectCpuFeatures() { return InterpretCpuid(ReadCpuid()); }

}  // namespace moestro
