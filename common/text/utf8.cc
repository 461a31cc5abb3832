#include "common/text/utf8.h"

namespace moestro::text {
namespace {

// The bytes allowed directly after a lead byte; later continuation bytes are always 0x80..0xBF (Unicode table 3-7).
struct LeadByte {
  int length;  // 0: cannot start a sequence
  unsigned char second_low;
  unsigned char second_high;
};

LeadByte Classify(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step ReadUtf8(std::string_view text, size_t offset) {
  const auto byte_at = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned char lead = byte_at(0);
  if (lead < 0x80) return {Utf8Step::Kind::kCodePoint, 1, lead};
  const LeadByte form = Classify(lead);
  if (form.length == 0) return {Utf8Step::Kind::kInvalid, 1, 0};
  char32_t value = lead & (0x7Fu >> form.length);
  for (int i = 1; i < form.length; ++i) {
    if (offset + i == text.size()) return {Utf8Step::Kind::kIncomplete, i, 0};
    const unsigned char low = i == 1 ? form.second_low : 0x80;
    const unsigned char high = i == 1 ? form.second_high : 0xBF;
    if (byte_at(i) < low || byte_at(i) > high) return {Utf8Step::Kind::kInvalid, i, 0};
    value = value << 6 | (byte_at(i) & 0x3Fu);
  }
  return {Utf8Step::Kind::kCodePoint, form.length, value};
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = ReadUtf8(text, offset);
    if (step.kind != Utf8Step::Kind::kCodePoint) return offset;
    offset += step.length;
  }
  return std::nullopt;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto put = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

bool IsUnicodeSpace(char32_t code_point) {
  return (code_point >= 0x09 && code_point <= 0x0D) || code_point == 0x20 || code_point == 0x85 || code_point == 0xA0 ||
         code_point == 0x1680 || (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F || code_point == 0x3000;
}

}  // namespace moestro::text
