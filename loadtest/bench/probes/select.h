// Selects the probes that this CPU can run.
#pragma once

#include <string_view>

#include "common/platform/cpu/cpu_features.h"
#include "loadtest/bench/probes/probes.h"

namespace moestro::bench {

// The best probes without tiles.
inline const Probes& SelectVectorProbes(const CpuFeatures& cpu) {
  if (cpu.avx512_bf16) return kProbesAvx512Bf16;
  if (cpu.avx512) return kProbesAvx512;
  if (cpu.avx2) return kProbesAvx2;
  return kProbesSse2;
}

// vpdpbusd, the ceiling of coded inputs; null if the CPU lacks it.
inline const Probes* SelectByteProbes(const CpuFeatures& cpu) {
  if (cpu.avx512_vnni) return &kProbesAvx512Vnni;
  return cpu.avx_vnni ? &kProbesAvxVnni : nullptr;
}

// The ceilings of kernels: tiles for kernels that use tiles.
inline const Probes& SelectProbes(const CpuFeatures& cpu, std::string_view kernels_isa) {
  return kernels_isa == kProbesAmx.isa ? kProbesAmx : SelectVectorProbes(cpu);
}

}  // namespace moestro::bench
