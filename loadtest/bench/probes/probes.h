// The loops that measure the machine's limits: reading, copying, multiplying and adding. One table for each instruction
// set. Plain data only: the sources of an instruction set include this header.
#pragma once

#include <cstdint>

namespace moestro::bench {

// How many bytes ahead reading prefetches; 0: only the hardware prefetches.
struct ReadAhead {
  int64_t l1 = 0;
  int64_t l2 = 0;
};

struct Probes {
  const char* isa;

  // Reads every byte of [data, data + bytes) once. The result depends on every byte. data is on a 64-byte boundary,
  // bytes a multiple of 256.
  uint64_t (*read)(const uint8_t* data, int64_t bytes, const ReadAhead& ahead);

  // Copies with stores that bypass the caches where the instruction set has them, so that a copied byte is one byte
  // read and one written. Both addresses are on a 64-byte boundary, bytes a multiple of 256.
  void (*copy)(uint8_t* to, const uint8_t* from, int64_t bytes);

  // Runs `rounds` rounds of independent chains of the dot-product instruction.
  void (*dot)(int64_t rounds);
  double dot_operations;        // multiplications and additions of one round
  const char* dot_instruction;  // its name in the report
};

extern const Probes kProbesSse2;
extern const Probes kProbesAvx2;        // FMA
extern const Probes kProbesAvx512;      // FMA
extern const Probes kProbesAvx512Bf16;  // vdpbf16ps
extern const Probes kProbesAvxVnni;     // 256-bit vpdpbusd; the rest as for AVX2
extern const Probes kProbesAvx512Vnni;  // vpdpbusd; the rest as for AVX-512
extern const Probes kProbesAmx;         // tdpbf16ps; the rest as for AVX-512

// Shared by the probes for AVX2 and those for AVX-VNNI.
uint64_t ReadAvx2(const uint8_t* data, int64_t bytes, const ReadAhead& ahead);
void CopyAvx2(uint8_t* to, const uint8_t* from, int64_t bytes);
// Shared by the probes for AVX-512, VNNI and AMX.
uint64_t ReadAvx512(const uint8_t* data, int64_t bytes, const ReadAhead& ahead);
void CopyAvx512(uint8_t* to, const uint8_t* from, int64_t bytes);

}  // namespace moestro::bench
