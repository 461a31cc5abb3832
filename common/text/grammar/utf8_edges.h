// The UTF-8 encodings of a set of code points, as sequences of byte ranges.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/text/grammar/code_point_set.h"

namespace moestro::text::grammar {

struct ByteSequence {
  struct Range {
    uint8_t first;
    uint8_t last;  // inclusive
  };
  int length = 0;  // 1 to 4
  std::array<Range, 4> ranges = {};
};

// Together they match the encodings of exactly the set's code points, each in one sequence.
std::vector<ByteSequence> Utf8Sequences(const CodePointSet& set);

}  // namespace moestro::text::grammar
