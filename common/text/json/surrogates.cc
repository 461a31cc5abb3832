#include "common/text/json/surrogates.h"

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"

namespace moestro::text {
namespace {

constexpr size_t kEscapeBytes = 6;  // \uXXXX

// The code unit of an escape that begins at `at`; nullopt: none does.
std::optional<uint32_t> UnitAt(std::string_view json, size_t at) {
  if (json.size() < at + kEscapeBytes || json[at] != '\\' || json[at + 1] != 'u') return std::nullopt;
  uint32_t unit = 0;
  for (const char c : json.substr(at + 2, 4)) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    unit = unit * 16 +
           static_cast<uint32_t>(absl::ascii_isdigit(static_cast<unsigned char>(c)) ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return unit;
}

bool IsHigh(std::optional<uint32_t> unit) { return unit && *unit >= 0xD800 && *unit < 0xDC00; }
bool IsLow(std::optional<uint32_t> unit) { return unit && *unit >= 0xDC00 && *unit < 0xE000; }

}  // namespace

void ReplaceLoneSurrogates(std::string& json) {
  for (size_t at = json.find('\\'); at != std::string::npos; at = json.find('\\', at)) {
    const std::optional<uint32_t> unit = UnitAt(json, at);
    if (!unit) {
      at += 2;  // another escape: what it escapes begins none
    } else if (IsHigh(unit) && IsLow(UnitAt(json, at + kEscapeBytes))) {
      at += 2 * kEscapeBytes;
    } else {
      if (IsHigh(unit) || IsLow(unit)) json.replace(at, kEscapeBytes, "\\ufffd");
      at += kEscapeBytes;
    }
  }
}

}  // namespace moestro::text
