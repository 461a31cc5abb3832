#include "common/access/api_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::access {
namespace {

constexpr std::string_view kKeyPrefix = "moe_";
constexpr char kHashPrefix[] = "sha256:";
constexpr size_t kRandomCharacters = 32;
constexpr size_t kRandomBytes = kRandomCharacters / 4 * 3;

absl::Status FillRandom(std::span<uint8_t> bytes) {
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1) return absl::OkStatus();
  return absl::InternalError("the machine's random source fails");
}

std::array<uint8_t, 32> Digest(std::span<const uint8_t> salt, std::string_view key) {
  std::array<uint8_t, 32> digest{};
  unsigned int bytes = 0;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  MOE_CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1 &&
            EVP_DigestUpdate(context.get(), salt.data(), salt.size()) == 1 &&
            EVP_DigestUpdate(context.get(), key.data(), key.size()) == 1 &&
            EVP_DigestFinal_ex(context.get(), digest.data(), &bytes) == 1 && bytes == digest.size());
  return digest;
}

// The bytes as a text, which Abseil's functions take.
std::string Raw(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

std::string ToHex(std::span<const uint8_t> bytes) { return absl::BytesToHexString(Raw(bytes)); }

// False unless `hex` has exactly two hexadecimal digits for each byte.
bool FromHex(std::string_view hex, std::span<uint8_t> bytes) {
  const auto is_digit = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
  if (hex.size() != 2 * bytes.size() || !std::ranges::all_of(hex, is_digit)) return false;
  std::ranges::copy(absl::HexStringToBytes(std::string(hex)), bytes.begin());
  return true;
}

}  // namespace

absl::StatusOr<std::string> NewApiKey() {
  std::array<uint8_t, kRandomBytes> random{};
  MOE_RETURN_IF_ERROR(FillRandom(random));
  return std::string(kKeyPrefix) + absl::WebSafeBase64Escape(Raw(random));
}

bool IsApiKey(std::string_view text) {
  return text.size() == kKeyPrefix.size() + kRandomCharacters && text.starts_with(kKeyPrefix) &&
         std::ranges::all_of(
             text, [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_'; });
}

absl::StatusOr<Salt> NewSalt() {
  Salt salt{};
  MOE_RETURN_IF_ERROR(FillRandom(salt));
  return salt;
}

KeyHash HashApiKey(const Salt& salt, std::string_view key) { return {.salt = salt, .digest = Digest(salt, key)}; }

bool Matches(const KeyHash& hash, std::string_view key) {
  const std::array<uint8_t, 32> digest = Digest(hash.salt, key);
  return CRYPTO_memcmp(digest.data(), hash.digest.data(), digest.size()) == 0;
}

std::string ToText(const KeyHash& hash) { return absl::StrCat(kHashPrefix, ToHex(hash.salt), ":", ToHex(hash.digest)); }

absl::StatusOr<KeyHash> ParseKeyHash(std::string_view text) {
  KeyHash hash;
  const std::string_view rest = text.substr(std::min(std::size(kHashPrefix) - 1, text.size()));
  const size_t colon = rest.find(':');
  if (text.starts_with(kHashPrefix) && colon != std::string_view::npos && FromHex(rest.substr(0, colon), hash.salt) &&
      FromHex(rest.substr(colon + 1), hash.digest)) {
    return hash;
  }
  return absl::InvalidArgumentError(
      "must be sha256:SALT:DIGEST with 32 and 64 hexadecimal digits, as written by "
      "`moestro keys add`");
}

absl::StatusOr<std::string> RandomHex(size_t bytes) {
  std::string random(bytes, '\0');
  MOE_RETURN_IF_ERROR(FillRandom({reinterpret_cast<uint8_t*>(random.data()), random.size()}));
  return absl::BytesToHexString(random);
}

}  // namespace moestro::access
