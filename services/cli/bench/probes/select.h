// Which probes this CPU can run.
#pragma once

#include "common/platform/cpu/cpu_features.h"
#include "services/cli/bench/probes/probes.h"

namespace moestro::bench {

inline const Probes& SelectProbes(const CpuFeatures& cpu) {
  if (cpu.avx512_bf16) return kProbesAvx512Bf16;
  if (cpu.avx512) return kProbesAvx512;
  if (cpu.avx2) return kProbesAvx2;
  return kProbesSse2;
}

}  // namespace moestro::bench
