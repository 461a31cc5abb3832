// The loops that show what the machine can do at most: reading, copying, multiplying and adding. One table for each
// instruction set. Plain data only: the sources of an instruction set include this header.
#pragma once

#include <cstdint>

namespace moestro::bench {

// How far ahead reading prefetches, in bytes; 0: not at all, the hardware does.
struct ReadAhead {
  int64_t l1 = 0;
  int64_t l2 = 0;
};

struct Probes {
  const char* isa;

  // Reads every byte of [data, data + bytes) once. The result depends on every byte. data on a 64-byte boundary, bytes
  // a multiple of 256.
  uint64_t (*read)(const uint8_t* data, int64_t bytes, const ReadAhead& ahead);

  // Copies with stores that bypass the caches where the instruction set has them, so that a byte copied is one byte
  // read and one written. Both on a 64-byte boundary, bytes a multiple of 256.
  void (*copy)(uint8_t* to, const uint8_t* from, int64_t bytes);

  // `rounds` rounds of independent chains of the instruction that dot products are made of.
  void (*dot)(int64_t rounds);
  double dot_operations;        // multiplications and additions of one round
  const char* dot_instruction;  // as the report names it
};

extern const Probes kProbesSse2;
extern const Probes kProbesAvx2;        // FMA
extern const Probes kProbesAvx512;      // FMA
extern const Probes kProbesAvx512Bf16;  // vdpbf16ps
extern const Probes kProbesAmx;         // tdpbf16ps; the rest as for AVX-512

// What the probes for AVX-512 share with those for AMX.
uint64_t ReadAvx512(const uint8_t* data, int64_t bytes, const ReadAhead& ahead);
void CopyAvx512(uint8_t* to, const uint8_t* from, int64_t bytes);

}  // namespace moestro::bench
