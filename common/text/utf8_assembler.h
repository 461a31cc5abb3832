// Assembles a stream of byte chunks, cut anywhere, into well-formed UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moestro::text {

// What an ill-formed sequence becomes: one U+FFFD for each maximal subpart, as in byte-level tokenizers, or one for
// each byte, as in SentencePiece.
enum class Utf8Repair { kSubpart, kByte };

// Not thread-safe. Holds back at most 3 bytes: a sequence that later bytes may complete. A U+FFFD in the input is
// ordinary text and is never held back.
class Utf8Assembler {
 public:
  // Drops up to `stripped_spaces` spaces from the start of the stream.
  explicit Utf8Assembler(Utf8Repair repair = Utf8Repair::kSubpart, int stripped_spaces = 0)
      : repair_(repair), stripped_spaces_(stripped_spaces), to_strip_(stripped_spaces) {}

  // The text completed by `bytes`.
  std::string Push(std::string_view bytes);
  // End of the stream: bytes held back become U+FFFD. Then ready for a new stream.
  std::string Flush();

 private:
  void AppendRepaired(size_t bytes, std::string* out) const;

  Utf8Repair repair_;
  int stripped_spaces_;
  int to_strip_;
  std::string pending_;
};

}  // namespace moestro::text
