// Integer helpers that shapes and offsets need everywhere.
#pragma once

#include <cstdint>

namespace moestro {

// Smallest integer >= a / b, for a >= 0, b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
// a rounded up to a multiple of b.
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

}  // namespace moestro
