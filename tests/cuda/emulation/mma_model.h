// Models of mma's products for a whole warp (ptx_model.h). A source of their own, because that of kernels is compiled
// with hooks at every access, which cost more than the products.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace moestro::cuda {

template <typename Sum>
struct MmaInput {
  uint32_t a[4];
  uint32_t b[2];
  Sum c[4];
};

inline double Bf16Value(uint32_t bits) {
  const uint32_t wide = (bits & 0xffff) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

double E4M3Value(uint32_t code);

// As sums are cut, see below: towards zero, where the nearest number is farther from it. The code of a number is one
// above that of the next one nearer to zero.
inline float CutToFloat(double value) {
  float cut = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &cut, sizeof bits);
  bits -= std::fabs(double{cut}) > std::fabs(value) && !std::isinf(cut) ? 1 : 0;
  std::memcpy(&cut, &bits, sizeof bits);
  return cut;
}

// D = A B + C for A [16, depth] and B [depth, 8] with elements of `bits` bits, 32 / bits per register: depth 16 with 16
// bits, 32 with 8. With g = lane / 4 and t = lane % 4, a lane's registers hold
//   A: register r: row g + 8 (r % 2), columns depth / 2 * (r / 2) + t * (32 / bits) and those after it
//   B: register r: column g, rows    depth / 2 * r       + t * (32 / bits) and those after it
//   C, D: number i: row g + 8 (i / 2), column 2 t + i % 2
// Products are exact. Tensor cores align the terms of a sum and truncate the rest: unlike rounding, never away from
// zero. So a kernel that relied on rounding would fail here. ins: each lane's MmaInput; outs: its four sums.
void MultiplyBf16(const void* const* ins, void* const* outs);  // sums in float
void MultiplyE4M3(const void* const* ins, void* const* outs);  // sums in float
void MultiplyS8(const void* const* ins, void* const* outs);    // sums in int32_t

}  // namespace moestro::cuda
