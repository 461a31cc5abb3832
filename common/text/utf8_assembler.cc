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
        AppendRepaired(step.length, &out);
        break;
      case Utf8Step::Kind::kIncomplete:
        pending_.assign(text, offset, step.length);
        break;
    }
    offset += step.length;
  }
  size_t stripped = 0;
  while (to_strip_ > 0 && stripped < out.size()) {
    to_strip_ = out[stripped] == ' ' ? to_strip_ - 1 : 0;
    if (out[stripped] == ' ') ++stripped;
  }
  out.erase(0, stripped);
  return out;
}

std::string Utf8Assembler::Flush() {
  std::string out;
  if (!pending_.empty()) AppendRepaired(pending_.size(), &out);
  pending_.clear();
  to_strip_ = stripped_spaces_;
  return out;
}

void Utf8Assembler::AppendRepaired(size_t bytes, std::string* out) const {
  const size_t count = repair_ == Utf8Repair::kByte ? bytes : 1;
  for (size_t i = 0; i < count; ++i) out->append(kReplacementCharacter);
}

}  // namespace moestro::text
