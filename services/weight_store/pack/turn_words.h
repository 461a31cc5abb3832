// INT4 weights whose outputs are columns (AWQ, GPTQ), turned into rows.
#pragma once

#include <cstdint>

namespace moestro::store {

// The nibble, from the lowest up, in which a word of AWQ has output `output` of its eight.
constexpr int64_t PlaceInWord(int64_t output) { return output % 2 * 4 + output / 2; }

// Both write `rows` rows of `cols` / 2 bytes: two codes a byte, the first input in the low half. `words`:
// little-endian, of eight codes; the first ones of the first row. `line_bytes`: from a word to the next one of the same
// rows. Thread-safe.

// GPTQ: a word has eight inputs of a row, the first lowest. Words of neighbouring rows are neighbours.
void TurnWordsOfInputs(const uint8_t* words, int64_t line_bytes, int64_t cols, int64_t rows, uint8_t* out);

// AWQ: a word has an input of eight rows, at PlaceInWord; the next word is of the next eight rows. REQUIRES: cols and
// rows are multiples of 8.
void TurnWordsOfOutputs(const uint8_t* words, int64_t line_bytes, int64_t cols, int64_t rows, uint8_t* out);

}  // namespace moestro::store
