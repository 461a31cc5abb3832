#include "common/tensor/dtype.h"

#include <algorithm>
#include <iterator>

namespace moestro {

const char* DTypeName(DType type) {
  constexpr const char* kNames[] = {"F32",  "BF16", "F8_E4M3", "F16",    "I8",    "Q8_0",   "Q4_0",    "Q5_0", "Q4_K",
                                    "Q5_K", "Q6_K", "I4_32",   "I4_128", "MXFP4", "I4Z_32", "I4Z_128", "Q4_1", "Q5_1"};
  static_assert(std::size(kNames) == static_cast<size_t>(kLastDType) + 1);
  return kNames[static_cast<size_t>(type)];
}

uint16_t ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520.0f) return sign | 0x7c00;  // half a step above the largest
  if (magnitude < 0x1p-14f) return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));  // exact product
  const uint32_t unsigned_bits = bits & 0x7fffffffu;
  const uint32_t rounded = unsigned_bits + 0xfffu + (unsigned_bits >> 13 & 1);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112u << 10));
}

uint8_t ToE4M3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (magnitude >= 448.0f) return sign | 0x7e;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  // One unit in the last place: 2^(exponent-4) for normals, 2^-9 for subnormals.
  const int unit = std::max(exponent - 4, -9);
  const float steps = std::nearbyint(std::ldexp(magnitude, -unit));  // 0..16, ties to even
  if (unit == -9 && steps < 8) return sign | static_cast<uint8_t>(steps);
  int biased = unit + 10;
  int mantissa = static_cast<int>(steps);
  if (mantissa == 16) {
    mantissa = 8;
    ++biased;
  }
  const int code = (biased << 3) | (mantissa - 8);
  return sign | static_cast<uint8_t>(std::min(code, 0x7e));
}

}  // namespace moestro
