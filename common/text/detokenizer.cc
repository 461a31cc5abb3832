#include "common/text/detokenizer.h"

namespace moestro::text {

std::string IncrementalDetokenizer::Push(int32_t id) {
  if (skip_special_ && tokenizer_.IsSpecial(id)) return "";
  return assembler_.Push(tokenizer_.DecodeBytes(id));
}

}  // namespace moestro::text
