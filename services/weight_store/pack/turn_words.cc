#include "services/weight_store/pack/turn_words.h"

#include <algorithm>
#include <cstring>

namespace moestro::store {
namespace {

// Lines that are turned at once: a row then gets a cache line, and what is read stays in the first cache.
constexpr int64_t kLines = 16;

uint32_t Load32(const uint8_t* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

// Swaps the bits of `mask` in `b` with those kShift above them in `a`.
template <int kShift>
void Swap(uint32_t mask, uint32_t& a, uint32_t& b) {
  const uint32_t changed = ((a >> kShift) ^ b) & mask;
  a ^= changed << kShift;
  b ^= changed;
}

// Nibble i of word j becomes nibble j of word i: blocks of 4 x 4 nibbles change places, then of 2 x 2, then nibbles.
void TransposeNibbles(uint32_t (&words)[8]) {
  for (int i = 0; i < 4; ++i) Swap<16>(0x0000ffff, words[i], words[i + 4]);
  for (const int i : {0, 1, 4, 5}) Swap<8>(0x00ff00ff, words[i], words[i + 2]);
  for (const int i : {0, 2, 4, 6}) Swap<4>(0x0f0f0f0f, words[i], words[i + 1]);
}

}  // namespace

void TurnWordsOfInputs(const uint8_t* words, int64_t line_bytes, int64_t cols, int64_t rows, uint8_t* out) {
  const int64_t lines = cols / 8;
  for (int64_t first = 0; first < lines; first += kLines) {
    const int64_t end = std::min(first + kLines, lines);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t line = first; line < end; ++line) {
        std::memcpy(out + row * cols / 2 + line * 4, words + line * line_bytes + row * 4, 4);
      }
    }
  }
}

void TurnWordsOfOutputs(const uint8_t* words, int64_t line_bytes, int64_t cols, int64_t rows, uint8_t* out) {
  for (int64_t first = 0; first < cols; first += 8 * kLines) {
    const int64_t end = std::min(first + 8 * kLines, cols);
    for (int64_t row = 0; row < rows; row += 8) {
      for (int64_t input = first; input < end; input += 8) {
        uint32_t turned[8];
        for (int64_t i = 0; i < 8; ++i) turned[i] = Load32(words + (input + i) * line_bytes + row / 2);
        TransposeNibbles(turned);
        for (int64_t output = 0; output < 8; ++output) {
          std::memcpy(out + (row + output) * cols / 2 + input / 2, &turned[PlaceInWord(output)], 4);
        }
      }
    }
  }
}

}  // namespace moestro::store
