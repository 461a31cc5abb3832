// Shared by the tests of `linear`: inputs and outputs whose surroundings show what a kernel should not touch.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/common/kernels/kernel_test.h"

namespace moestro {

struct alignas(kPackedAlignment) Line {
  uint8_t bytes[kPackedAlignment];
};

inline constexpr uint16_t kBf16Nan = 0x7fc0;
inline constexpr float kUntouched = -12345.0f;

// Activations [tokens, stride]. Elements past `cols` are NaN, and the array ends with the last token's last element. So
// a read past a row shows in a value or in the address sanitizer.
struct Activations {
  int64_t stride = 0;
  std::vector<uint16_t> x;
};
inline Activations RandomActivations(int64_t tokens, int64_t cols) {
  Activations a{cols + 5, RandomBf16((tokens - 1) * (cols + 5) + cols, static_cast<uint32_t>(cols))};
  for (size_t i = 0; i < a.x.size(); ++i) {
    if (static_cast<int64_t>(i) % a.stride >= cols) a.x[i] = kBf16Nan;
  }
  return a;
}

// Leaves NaN, in any format, where the next call's local variables will be: it reveals what a kernel forgets to write.
[[gnu::noinline]] inline void DirtyStack() {
  uint8_t garbage[512 << 10];
  std::memset(garbage, 0xff, sizeof garbage);
  asm volatile("" : : "r"(garbage) : "memory");
}

// Outputs [tokens, rows + 3]; the extra columns must stay untouched.
inline std::vector<float> RunLinear(const CpuKernels& kernels, const PackedMatrix& w, const Activations& a,
                                    int64_t tokens, int64_t row_begin, int64_t row_end) {
  std::vector<float> y(static_cast<size_t>(tokens * (w.rows + 3)), kUntouched);
  DirtyStack();
  kernels.linear(w, a.x.data(), a.stride, tokens, y.data() + row_begin, w.rows + 3, row_begin, row_end);
  return y;
}
inline bool SameBits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, static_cast<size_t>(n) * sizeof(float)) == 0;
}

}  // namespace moestro
