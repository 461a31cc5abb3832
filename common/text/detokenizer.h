// Converts token ids to text during generation.
#pragma once

#include <cstdint>
#include <string>

#include "common/text/tokenizer.h"
#include "common/text/utf8_assembler.h"

namespace moestro::text {

// The concatenated results equal Tokenizer::Decode of all ids. Not thread-safe.
class IncrementalDetokenizer {
 public:
  // The tokenizer must outlive this. `skip_special` omits special tokens from the text.
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special), assembler_(tokenizer.NewAssembler()) {}

  // The text completed by `id`: whole code points only. Holds back up to 3 bytes of a sequence that the next token may
  // complete. Bytes that nothing can complete become U+FFFD at once.
  std::string Push(int32_t id);

  // End of the stream: an incomplete sequence becomes U+FFFD. Then ready for a new stream.
  std::string Flush() { return assembler_.Flush(); }

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  Utf8Assembler assembler_;
};

}  // namespace moestro::text
