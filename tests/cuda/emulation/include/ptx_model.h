// Models of the wrappers in common/kernels/cuda/ptx.cuh, lane by lane, as the PTX ISA documents each instruction
// (chapters "Matrix multiply-accumulate operation using mma instruction", "ldmatrix", "cp.async"). ptx.cuh includes it
// if the compiler is not nvcc.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "tests/cuda/emulation/machine.h"
#include "tests/cuda/emulation/mma_model.h"

namespace moestro::cuda {

inline uint8_t* DynamicShared() { return emulation::DynamicShared(); }

inline void BeginKernel() { emulation::BeginKernel(); }
inline void Prefetch(const void* p) { emulation::Prefetch(p); }

// ---- Copies

inline void LoadIf(bool wanted, const void* from, uint4& to) {
  if (wanted) to = *static_cast<const uint4*>(from);
}
inline float4 LoadFromHost(const float* from) {
  float numbers[4];
  emulation::LoadFromHost(from, numbers);
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}
inline void CopyAsync16(void* shared, const void* global, int valid_bytes) {
  emulation::CopyAsync(shared, global, 16, valid_bytes);
}
inline void CopyAsync8(void* shared, const void* global, int valid_bytes) {
  emulation::CopyAsync(shared, global, 8, valid_bytes);
}
inline void CopyAsync4(void* shared, const void* global, int valid_bytes) {
  emulation::CopyAsync(shared, global, 4, valid_bytes);
}
inline void CommitCopies() { emulation::CommitCopies(); }
template <int kGroups>
inline void WaitCopies() {
  emulation::WaitCopies(kGroups);
}

// ---- Flags

inline void StoreFlag(uint32_t* flag, uint32_t value) { emulation::StoreFlag(flag, value); }

// ---- ldmatrix

struct MatrixRows {
  const uint8_t* row;  // 16 bytes: row lane % 8 of matrix lane / 8
};

// Matrix m's element (row i, column j) is the j-th 16-bit element of the row to which lane 8 m + i points. Lane l gets,
// from every matrix, row l / 4, columns 2 (l % 4) and the next; transposed: column l / 4, rows 2 (l % 4) and the next.
template <bool kTransposed>
inline void LoadMatrices(uint32_t (&registers)[4], const void* row, const char* what, std::source_location site) {
  emulation::CheckAlignment(what, row, 16);
  emulation::CheckAccess(row, 16, emulation::Access::kRead, /*whole_warp=*/true, /*instruction=*/what);
  const MatrixRows in{static_cast<const uint8_t*>(row)};
  emulation::WarpOperation(what, site, &in, registers, [](const void* const* ins, void* const* outs) {
    const auto element = [ins](int matrix, int i, int j) {
      uint16_t bits;
      std::memcpy(&bits, static_cast<const MatrixRows*>(ins[8 * matrix + i])->row + 2 * j, sizeof bits);
      return uint32_t{bits};
    };
    for (int lane = 0; lane < 32; ++lane) {
      for (int m = 0; m < 4; ++m) {
        const int a = lane / 4, b = 2 * (lane % 4);
        static_cast<uint32_t*>(outs[lane])[m] =
            kTransposed ? element(m, b, a) | element(m, b + 1, a) << 16 : element(m, a, b) | element(m, a, b + 1) << 16;
      }
    }
  });
}

inline void LoadMatrixX4(uint32_t (&registers)[4], const void* row,
                         std::source_location site = std::source_location::current()) {
  LoadMatrices<false>(registers, row, "ldmatrix", site);
}
inline void LoadMatrixX4Transposed(uint32_t (&registers)[4], const void* row,
                                   std::source_location site = std::source_location::current()) {
  LoadMatrices<true>(registers, row, "ldmatrix.trans", site);
}

// ---- mma

template <typename Sum>
inline void Mma(Sum (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const char* what, emulation::Combine model,
                std::source_location site) {
  const MmaInput<Sum> in{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
  emulation::WarpOperation(what, site, &in, d, model);
}

inline void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                    std::source_location site = std::source_location::current()) {
  Mma(d, a, b, "mma.m16n8k16.bf16", MultiplyBf16, site);
}
inline void MmaE4M3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                    std::source_location site = std::source_location::current()) {
  Mma(d, a, b, "mma.m16n8k32.e4m3", MultiplyE4M3, site);
}
inline void MmaS8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                  std::source_location site = std::source_location::current()) {
  Mma(d, a, b, "mma.m16n8k32.s8", MultiplyS8, site);
}

// ---- Arithmetic

inline uint32_t RoundToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline uint32_t PackBf16(float low, float high) { return RoundToBf16(low) | RoundToBf16(high) << 16; }
// Rounded once: a truncated F32, made odd if the truncation lost bits, is on the same side of every BF16 number and of
// every midpoint as `value`.
inline uint32_t RoundToBf16(double value) {
  float cut = CutToFloat(value);
  uint32_t bits;
  std::memcpy(&bits, &cut, sizeof bits);
  if (double{cut} != value && !std::isinf(cut)) bits |= 1;
  std::memcpy(&cut, &bits, sizeof bits);
  return RoundToBf16(cut);
}
inline uint32_t FmaBf16x2(uint32_t a, uint32_t b, uint32_t c) {
  const auto half = [&](int shift) {
    return RoundToBf16(Bf16Value(a >> shift) * Bf16Value(b >> shift) + Bf16Value(c >> shift));  // an exact product
  };
  return half(0) | half(16) << 16;
}
// The nearest number; of two as near, the one with an even code.
inline uint32_t RoundToE4M3(float value) {
  if (std::isnan(value)) return 0x7f;
  const uint32_t sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::fabs(double{value});
  if (magnitude >= 448) return sign | 0x7e;
  const int exponent = magnitude < 0x1p-6 ? -6 : std::ilogb(magnitude);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));  // up to 16
  return sign | (steps + (static_cast<uint32_t>(exponent + 6) << 3));
}
inline uint32_t PackE4M3(float low, float high) { return RoundToE4M3(low) | RoundToE4M3(high) << 8; }
inline uint32_t MaxAbsBf16x2(uint32_t a, uint32_t b) {
  const auto half = [&](int shift) { return std::max(a >> shift & 0x7fffu, b >> shift & 0x7fffu); };
  return half(0) | half(16) << 16 | ((a ^ b) & 0x80008000u);
}
template <int kFirst>
inline uint32_t SignedBytes(uint32_t bytes) {
  const auto half = [&](int byte) { return static_cast<uint16_t>(static_cast<int8_t>(bytes >> (8 * byte))); };
  return half(kFirst) | uint32_t{half(kFirst + 1)} << 16;
}
inline float Exp2(float x) { return std::exp2(x); }

}  // namespace moestro::cuda
