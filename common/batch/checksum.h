// What tells a torn or changed text from the one that was written: XXH3-64.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <string_view>

namespace moestro::batch {

// `seed`: the checksum of what comes before, for that of a list.
inline uint64_t Checksum(std::string_view text, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

}  // namespace moestro::batch
