#include "common/text/byte_level.h"

#include <array>

#include "common/text/utf8.h"

namespace moestro::text {
namespace {

constexpr char32_t kFirstShifted = 0x100;
constexpr int kShiftedBytes = 68;
constexpr char32_t kCodePointLimit = kFirstShifted + kShiftedBytes;

constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> MakeSpelling() {
  std::array<char32_t, 256> spelling{};
  char32_t shifted = kFirstShifted;
  for (int byte = 0; byte < 256; ++byte) {
    spelling[byte] = IsPrintable(byte) ? static_cast<char32_t>(byte) : shifted++;
  }
  return spelling;
}

constexpr std::array<char32_t, 256> kSpelling = MakeSpelling();

// The byte of each code point below kCodePointLimit, or -1.
constexpr std::array<int16_t, kCodePointLimit> MakeBytes() {
  std::array<int16_t, kCodePointLimit> bytes{};
  bytes.fill(-1);
  for (int byte = 0; byte < 256; ++byte) bytes[kSpelling[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr std::array<int16_t, kCodePointLimit> kBytes = MakeBytes();

}  // namespace

std::string SpellBytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char byte : bytes) AppendUtf8(kSpelling[static_cast<unsigned char>(byte)], &out);
  return out;
}

std::optional<std::string> UnspellBytes(std::string_view spelling) {
  std::string out;
  for (size_t offset = 0; offset < spelling.size();) {
    const Utf8Step step = ReadUtf8(spelling, offset);
    if (step.kind != Utf8Step::Kind::kCodePoint || step.code_point >= kCodePointLimit || kBytes[step.code_point] < 0) {
      return std::nullopt;
    }
    out.push_back(static_cast<char>(kBytes[step.code_point]));
    offset += step.length;
  }
  return out;
}

}  // namespace moestro::text
