#include "common/text/jinja/strings.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/text/utf8.h"

namespace moestro::jinja {
namespace {

template <typename Predicate>
std::string_view StripWhere(std::string_view text, Side side, Predicate stripped) {
  while (side != Side::kRight && !text.empty() && stripped(text.substr(0, Utf8Length(text[0])))) {
    text.remove_prefix(Utf8Length(text[0]));
  }
  while (side != Side::kLeft && !text.empty()) {
    size_t last = text.size() - 1;
    while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!stripped(text.substr(last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

bool IsSpaceAt(std::string_view text) { return IsPythonSpace(ReadUtf8(text, 0).code_point); }

}  // namespace

bool IsPythonSpace(char32_t code_point) {
  return IsUnicodeSpace(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}

std::string_view StripSpace(std::string_view text, Side side) { return StripWhere(text, side, IsSpaceAt); }

std::string_view StripCharacters(std::string_view text, std::string_view characters, Side side) {
  return StripWhere(text, side, [&](std::string_view c) { return characters.find(c) != std::string_view::npos; });
}

int64_t CodePointCount(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::vector<size_t> CodePointOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t offset = 0; offset < text.size(); offset += Utf8Length(text[offset])) offsets.push_back(offset);
  offsets.push_back(text.size());
  return offsets;
}

std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  for (text = StripSpace(text, Side::kLeft); !text.empty(); text = StripSpace(text, Side::kLeft)) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !IsSpaceAt(text.substr(end))) end += Utf8Length(text[end]);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, int64_t limit, Side side) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = side == Side::kLeft ? text.find(separator) : text.rfind(separator);
    if (at == std::string_view::npos) break;
    const std::string_view before = text.substr(0, at);
    const std::string_view after = text.substr(at + separator.size());
    parts.push_back(side == Side::kLeft ? before : after);
    text = side == Side::kLeft ? after : before;
  }
  parts.push_back(text);
  if (side == Side::kRight) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit) {
  std::string out;
  while (limit != 0) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
    --limit;
  }
  return out.append(text);
}

std::string Upper(std::string_view text) {
  std::string out(text);
  absl::AsciiStrToUpper(&out);
  return out;
}

std::string Lower(std::string_view text) {
  std::string out(text);
  absl::AsciiStrToLower(&out);
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out = Lower(text);
  if (!out.empty()) out[0] = absl::ascii_toupper(static_cast<unsigned char>(out[0]));
  return out;
}

}  // namespace moestro::jinja
