// Token ids to text while they are generated.
#pragma once

#include <cstdint>
#include <string>

#include "common/text/tokenizer.h"
#include "common/text/utf8_assembler.h"

namespace moestro {

// The concatenation of everything it returns is Tokenizer::Decode of all ids. Not thread-safe.
class IncrementalDetokenizer {
 public:
  // The tokenizer must outlive this. `skip_special` leaves special tokens out of the text.
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that `id` completes: whole code points only. Up to 3 bytes of a sequence that the next token may complete
  // are held back; bytes that nothing can complete become U+FFFD at once.
  std::string Push(int32_t id);

  // End of the stream: a sequence that was never completed becomes U+FFFD. Ready for a new stream.
  std::string Flush() { return assembler_.Flush(); }

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  Utf8Assembler assembler_;
};

}  // namespace moestro
