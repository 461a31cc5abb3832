// Ways to expand E4M3 codes to BF16. The first three are those of the article on SGLang's CPU backend (Intel, 2025,
// section "FP8 inference"), written from its description; the last two are this project's own, from the headers of its
// kernels. AVX-512 with VBMI, and GFNI: the caller must check the CPU first. Plain data only.
#pragma once

#include <cstdint>

namespace moestro::bench {

inline constexpr int64_t kFp8Step = 256;  // codes that one bit of the exceptions covers (packed_matrix.h)

struct Fp8Codes {
  const uint8_t* codes = nullptr;
  int64_t count = 0;                     // a multiple of kFp8Step
  const uint32_t* exceptions = nullptr;  // ceil(count / 32 / kFp8Step) words; read by Fp8ByBitMatrices only
};

// Each writes codes.count values, out[i] for codes[i] unless stated otherwise.

// The article's a): gathers from a table of 256 values. Exact.
void Fp8ByGather(const Fp8Codes& codes, uint16_t* out);
// The article's b): shifts and an addition, with the cases of zero, subnormals and NaN. Exact.
void Fp8ByArithmetic(const Fp8Codes& codes, uint16_t* out);
// The article's choice: the same without the cases of subnormals and NaN, which get the bits of other numbers.
void Fp8Skipping(const Fp8Codes& codes, uint16_t* out);

// Byte tables in registers (`avx512_bf16`). Exact. Of 64 codes, the values of lane i (16 codes) are out[8 i] .. out[8 i
// + 7] and out[32 + 8 i] .. out[32 + 8 i + 7]: the order of a packed tile's operands.
void Fp8ByByteTables(const Fp8Codes& codes, uint16_t* out);
// Products of bits for normal numbers, byte tables for steps with exceptions (`amx`). Exact, in the same order.
void Fp8ByBitMatrices(const Fp8Codes& codes, uint16_t* out);

}  // namespace moestro::bench
