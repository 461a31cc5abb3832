#include "common/text/jinja/strings.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "common/text/utf8.h"

namespace moestro::text::jinja {
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

std::vector<std::string_view> SplitFromLeft(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = Find(text, separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

// Splits the mirrored text, because Find searches in one direction only.
std::vector<std::string_view> SplitFromRight(std::string_view text, std::string_view separator, int64_t limit) {
  const std::string mirrored(text.rbegin(), text.rend());
  std::vector<std::string_view> parts =
      SplitFromLeft(mirrored, std::string(separator.rbegin(), separator.rend()), limit);
  std::reverse(parts.begin(), parts.end());
  for (std::string_view& part : parts) {
    const size_t end = mirrored.data() + mirrored.size() - part.data();
    part = text.substr(end - part.size(), part.size());
  }
  return parts;
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

size_t Find(std::string_view text, std::string_view part) {
  // glibc uses the two-way algorithm, or for parts of up to 256 bytes a scan that is also linear in the worst case.
  const void* at = memmem(text.data(), text.size(), part.data(), part.size());
  return at == nullptr ? std::string_view::npos : static_cast<const char*>(at) - text.data();
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
  return side == Side::kRight ? SplitFromRight(text, separator, limit) : SplitFromLeft(text, separator, limit);
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = ReadUtf8(text, at);
    const char32_t c = step.code_point;
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    size_t next = at + static_cast<size_t>(step.length);
    if (!ends) {
      at = next;
      continue;
    }
    if (c == '\r' && text.substr(next).starts_with('\n')) ++next;
    lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
    begin = at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit) {
  std::string out;
  while (limit != 0) {
    const size_t at = Find(text, from);
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

std::string Title(std::string_view text) {
  std::string out = Lower(text);
  bool begins = true;
  for (size_t i = 0; i < out.size(); i += static_cast<size_t>(Utf8Length(out[i]))) {
    if (begins) out[i] = absl::ascii_toupper(static_cast<unsigned char>(out[i]));
    begins = IsSpaceAt(std::string_view(out).substr(i)) || std::string_view("-({[<").find(out[i]) != std::string::npos;
  }
  return out;
}

}  // namespace moestro::text::jinja
