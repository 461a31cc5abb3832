#include "common/text/json/quoted.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/text/utf8.h"

namespace moestro::text {
namespace {

constexpr size_t kMaxBytes = 160;

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= kMaxBytes) return out + "...";
    const Utf8Step step = ReadUtf8(text, 0);
    const std::string_view piece = text.substr(0, static_cast<size_t>(step.length));
    if (step.kind == Utf8Step::Kind::kCodePoint && step.length > 1) {
      out.append(piece);
    } else {
      out += absl::CHexEscape(std::string(piece));
    }
    text.remove_prefix(piece.size());
  }
  return out;
}

std::string Quoted(std::string_view text) { return absl::StrCat("'", Printable(text), "'"); }

}  // namespace moestro::text
