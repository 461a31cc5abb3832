// Assembles a stream of byte chunks, cut anywhere, into well-formed UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace moestro::text {

// Not thread-safe. Holds back at most 3 bytes: a sequence that later bytes may complete. Each maximal ill-formed
// subpart becomes one U+FFFD. A U+FFFD in the input is ordinary text and is never held back.
class Utf8Assembler {
 public:
  // The text completed by `bytes`.
  std::string Push(std::string_view bytes);
  // End of the stream: bytes held back become U+FFFD. The assembler is empty again.
  std::string Flush();

 private:
  std::string pending_;
};

}  // namespace moestro::text
