// API keys, and the hashes that stand for them in a file.
//
// A key has 192 random bits, so nobody can guess it, and a fast hash protects it as well as a slow one: a slow hash
// protects passwords, which people choose. The salt keeps hashes of several files from being attacked together. The
// keys of one file may share it: equal ones do not occur, and one hash tells whether a key is among them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moestro::access {

using Salt = std::array<uint8_t, 16>;

// SHA-256(salt || key).
struct KeyHash {
  Salt salt{};
  std::array<uint8_t, 32> digest{};
};

// "moe_" and 32 random characters of A-Z a-z 0-9 - _. INTERNAL: the machine's random source fails.
absl::StatusOr<std::string> NewApiKey();

// True if the text has the form of a key. All else cannot match any hash.
bool IsApiKey(std::string_view text);

// INTERNAL as of NewApiKey.
absl::StatusOr<Salt> NewSalt();
KeyHash HashApiKey(const Salt& salt, std::string_view key);

// The time does not depend on how much of the digest agrees.
bool Matches(const KeyHash& hash, std::string_view key);

// "sha256:SALT:DIGEST" in hexadecimal digits, and back. INVALID_ARGUMENT says what the text must be.
std::string ToText(const KeyHash& hash);
absl::StatusOr<KeyHash> ParseKeyHash(std::string_view text);

// `bytes` random bytes in hexadecimal digits.
absl::StatusOr<std::string> RandomHex(size_t bytes);

}  // namespace moestro::access
