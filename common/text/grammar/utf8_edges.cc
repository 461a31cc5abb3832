#include "common/text/grammar/utf8_edges.h"

#include <algorithm>
#include <string>

#include "common/text/utf8.h"

namespace moestro::text::grammar {
namespace {

// Splits [first, last], whose encodings have one length, into sequences: until the bytes of both ends differ in one
// position only, and cover all values in those after it.
void Split(char32_t first, char32_t last, std::vector<ByteSequence>* out) {
  std::string low, high;
  AppendUtf8(first, &low);
  AppendUtf8(last, &high);
  const auto length = static_cast<int>(low.size());
  for (int tail = 1; tail < length; ++tail) {
    const char32_t mask = (char32_t{1} << (6 * tail)) - 1;
    if ((first & ~mask) == (last & ~mask)) break;
    if ((first & mask) != 0) {
      Split(first, first | mask, out);
      return Split((first | mask) + 1, last, out);
    }
    if ((last & mask) != mask) {
      Split(first, (last & ~mask) - 1, out);
      return Split(last & ~mask, last, out);
    }
  }
  ByteSequence sequence = {.length = length};
  for (int i = 0; i < length; ++i) {
    sequence.ranges[i] = {static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])};
  }
  out->push_back(sequence);
}

}  // namespace

std::vector<ByteSequence> Utf8Sequences(const CodePointSet& set) {
  // The last code point of each length.
  constexpr std::array<char32_t, 4> kEnds = {0x7F, 0x7FF, 0xFFFF, kMaxCodePoint};
  std::vector<ByteSequence> sequences;
  for (const CodePointSet::Range& range : set.ranges()) {
    char32_t first = range.first;
    for (const char32_t end : kEnds) {
      if (first > range.last) break;
      if (first > end) continue;
      Split(first, std::min(range.last, end), &sequences);
      first = end + 1;
    }
  }
  return sequences;
}

}  // namespace moestro::text::grammar
