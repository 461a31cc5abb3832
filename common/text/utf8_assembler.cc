#include "common/text/utf8_assembler.h"

#include <utility>

#include "common/text/utf8.h"

namespace moestro::text {

std::string Utf8Assembler::Push(std::string_view bytes) {
  const std::string text = std::exchange(pending_, {}).append(bytes);
  std::string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = ReadUtf8(text, offset);
    switch (step.kind) {
      case Utf8Step::Kind::kCodePoint:
        out.append(text, offset, step.length);
        break;
      case Utf8Step::Kind::kInvalid:
        out.append(kReplacementCharacter);
        break;
      case Utf8Step::Kind::kIncomplete:
        pending_.assign(text, offset, step.length);
        break;
    }
    offset += step.length;
  }
  return out;
}

std::string Utf8Assembler::Flush() {
  return std::exchange(pending_, {}).empty() ? std::string() : std::string(kReplacementCharacter);
}

}  // namespace moestro::text
