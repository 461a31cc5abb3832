#include "tests/cuda/emulation/mma_model.h"

#include <array>
#include <cmath>

namespace moestro::cuda {
namespace {

double ExactE4M3(uint32_t code) {
  const int exponent = static_cast<int>(code >> 3 & 15);
  const int mantissa = static_cast<int>(code & 7);
  if (exponent == 15 && mantissa == 7) return std::nan("");
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace

double E4M3Value(uint32_t code) {
  static const std::array<double, 256> values = [] {
    std::array<double, 256> all;
    for (uint32_t i = 0; i < 256; ++i) all[i] = ExactE4M3(i);
    return all;
  }();
  return values[code];
}

namespace {

double S8Value(uint32_t code) { return static_cast<int8_t>(code); }

// Sums of products of bytes are exact in a double.
int32_t CutToInt(double value) { return static_cast<int32_t>(static_cast<int64_t>(value)); }

using Four [[gnu::vector_size(4 * sizeof(double))]] = double;  // columns of a row

// sums [16, 8] += a [16, depth] b [depth, 8], a row's products in order.
[[gnu::target_clones("avx2", "default")]] void AddProducts(const double* a, const Four* b, int depth, Four* sums) {
  for (int row = 0; row < 16; ++row) {
    Four left = sums[2 * row], right = sums[2 * row + 1];
    for (int k = 0; k < depth; ++k) {
      left += a[row * depth + k] * b[2 * k];
      right += a[row * depth + k] * b[2 * k + 1];
    }
    sums[2 * row] = left;
    sums[2 * row + 1] = right;
  }
}

template <int kDepth, double (*kValue)(uint32_t), auto kCut, typename Sum>
void Multiply(const void* const* ins, void* const* outs) {
  constexpr int kBits = 256 / kDepth;
  constexpr int kPerRegister = 32 / kBits;
  constexpr uint32_t kMask = (1u << kBits) - 1;
  double a_matrix[16][kDepth];
  Four b_matrix[kDepth][2], sums[16][2];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& in = *static_cast<const MmaInput<Sum>*>(ins[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      sums[g + 8 * (r / 2)][t / 2][t % 2 * 2 + r % 2] = static_cast<double>(in.c[r]);
      for (int i = 0; i < kPerRegister; ++i) {
        const int column = kDepth / 2 * (r / 2) + t * kPerRegister + i;
        a_matrix[g + 8 * (r % 2)][column] = kValue(in.a[r] >> (kBits * i) & kMask);
        if (r < 2)
          b_matrix[kDepth / 2 * r + t * kPerRegister + i][g / 4][g % 4] = kValue(in.b[r] >> (kBits * i) & kMask);
      }
    }
  }
  AddProducts(a_matrix[0], b_matrix[0], kDepth, sums[0]);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      static_cast<Sum*>(outs[lane])[i] = kCut(sums[lane / 4 + 8 * (i / 2)][lane % 4 / 2][lane % 2 * 2 + i % 2]);
    }
  }
}

}  // namespace

void MultiplyBf16(const void* const* ins, void* const* outs) { Multiply<16, Bf16Value, CutToFloat, float>(ins, outs); }
void MultiplyE4M3(const void* const* ins, void* const* outs) { Multiply<32, E4M3Value, CutToFloat, float>(ins, outs); }
void MultiplyS8(const void* const* ins, void* const* outs) { Multiply<32, S8Value, CutToInt, int32_t>(ins, outs); }

}  // namespace moestro::cuda
