// Integer helpers for shapes and offsets.
#pragma once

#include <cstdint>

namespace moestro {

// Smallest integer >= a / b, for a >= 0, b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
// a rounded up to a multiple of b.
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  constexpr int64_t size() const { return end - begin; }
  friend constexpr bool operator==(const IndexRange&, const IndexRange&) = default;
};

// [0, count) cut into `parts` ranges whose sizes differ by at most one: part p is [count*p/parts, count*(p+1)/parts).
// This rule alone assigns row groups to NUMA domains, both for computing and for placing memory.
constexpr IndexRange EvenPart(int64_t count, int64_t part, int64_t parts) {
  return {count * part / parts, count * (part + 1) / parts};
}
// The part that holds `index`: the p with EvenPart(count, p, parts).begin <= index < .end. 0 <= index < count.
constexpr int64_t EvenPartOf(int64_t index, int64_t count, int64_t parts) { return ((index + 1) * parts - 1) / count; }

}  // namespace moestro
