#include "services/weight_store/checkpoint/quoted.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace moestro {
namespace {

constexpr size_t kMaxBytes = 160;

// Length of a well-formed UTF-8 sequence at the front of `text`, 0 if there is none. Overlong forms and surrogates
// are not well-formed.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                        : (lead & 0xf0) == 0xe0       ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) > 0x9f) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= kMaxBytes) return out + "...";
    const size_t length = Utf8Length(text);
    const size_t taken = length == 0 ? 1 : length;
    const std::string_view piece = text.substr(0, taken);
    if (length > 1) {
      out.append(piece);
    } else {
      out += absl::CHexEscape(std::string(piece));
    }
    text.remove_prefix(taken);
  }
  return out;
}

std::string Quoted(std::string_view text) { return absl::StrCat("'", Printable(text), "'"); }

}  // namespace moestro
