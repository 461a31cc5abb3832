// API keys, and the hashes that stand for them in a file.
//
// A key has 192 random bits, so nobody can guess it, and a fast hash protects it as well as a slow one: a slow hash
// protects passwords, which people choose. Each hash has its own salt, so equal keys do not show.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moestro::access {

// SHA-256(salt || key).
struct KeyHash {
  std::array<uint8_t, 16> salt{};
  std::array<uint8_t, 32> digest{};
};

// "moe_" and 32 random characters of A-Z a-z 0-9 - _. INTERNAL: the machine's random source fails.
absl::StatusOr<std::string> NewApiKey();

// True if the text has the form of a key. All else cannot match any hash.
bool IsApiKey(std::string_view text);

// Hashes the key with a new random salt.
absl::StatusOr<KeyHash> HashApiKey(std::string_view key);

// The time does not depend on how much of the digest agrees.
bool Matches(const KeyHash& hash, std::string_view key);

// "sha256:SALT:DIGEST" in hexadecimal digits, and back. INVALID_ARGUMENT says what the text must be.
std::string ToText(const KeyHash& hash);
absl::StatusOr<KeyHash> ParseKeyHash(std::string_view text);

// `bytes` random bytes in hexadecimal digits.
absl::StatusOr<std::string> RandomHex(size_t bytes);

}  // namespace moestro::access
