// The file of API keys: TOML, one [[key]] for each. It holds hashes, never keys.
//
//   secret = "64 hexadecimal digits"         # of the cache scopes; optional
//   [[key]]
//   name = "alice"                           # the tenant, in logs and metrics
//   hash = "sha256:SALT:DIGEST"
//   weight = 1.0                             # share of the machine among tenants that wait
//   requests-per-minute = 60                 # this and the next seven: absent = no limit
//   tokens-per-minute = 100000               # prompts, and answers as they grow (services/router/README.md)
//   burst-tokens = 200000                    # of tokens-per-minute at once; absent = those of one minute
//   running = 4
//   waiting = 16
//   max-tokens = 4096                        # of one answer, which ends there
//   context = 32768                          # prompt and max_tokens of one request
//   cache-scope = "own"                      # or "shared": with all keys that say so
//   endpoints = ["generate", "score", "tokenize", "admin"]   # absent = all but admin
//   expires = 2027-01-01                     # or a date with time and offset; the start of the day, UTC
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/access/api_key.h"

namespace moestro::access {

// What a key may call. Any key may ask for the model.
enum class Endpoint { kGenerate = 0, kScore = 1, kTokenize = 2, kAdmin = 3 };
inline constexpr std::array<Endpoint, 4> kEndpoints = {Endpoint::kGenerate, Endpoint::kScore, Endpoint::kTokenize,
                                                       Endpoint::kAdmin};
const char* EndpointName(Endpoint endpoint);  // "generate", as in the file

// nullopt: no limit.
struct TenantLimits {
  std::optional<int64_t> requests_per_minute = std::nullopt;
  std::optional<int64_t> tokens_per_minute = std::nullopt;
  std::optional<int64_t> burst_tokens = std::nullopt;
  std::optional<int64_t> running = std::nullopt;
  std::optional<int64_t> waiting = std::nullopt;
  std::optional<int64_t> max_tokens = std::nullopt;
  std::optional<int64_t> context = std::nullopt;
};

struct KeyEntry {
  std::string name = {};
  KeyHash hash = {};
  double weight = 1;
  TenantLimits limits = {};
  bool shared_cache = false;
  std::array<bool, kEndpoints.size()> endpoints = {true, true, true, false};  // by Endpoint
  absl::Time expires = absl::InfiniteFuture();

  bool allows(Endpoint endpoint) const { return endpoints[static_cast<size_t>(endpoint)]; }
};

struct KeysFile {
  std::string secret;  // empty: the file has none
  std::vector<KeyEntry> keys;
};

// Tenants without a key, whose names no key may have.
inline constexpr char kAnonymous[] = "anonymous";  // everybody, if there is no file
inline constexpr char kOperator[] = "operator";    // the user of the node

// Each has metrics of its own. A request hashes its key once for each salt of the file, and AddKey makes one.
inline constexpr size_t kMaxKeys = 1024;

// INVALID_ARGUMENT names the line, or the key and its setting, and the remedy.
absl::StatusOr<KeysFile> ParseKeysFile(const std::string& text);

// Reads and parses the file. Besides: NOT_FOUND, and PERMISSION_DENIED if others may read it, or others or its group
// may write to it, or it belongs to neither this user nor root. Errors begin with the path.
absl::StatusOr<KeysFile> ReadKeysFile(const std::string& path);

// Appends the entry to the file, with the hash of `key` under the salt of the file's first key. Creates the file, for
// this user only and with a secret, if there is none. The file is replaced as a whole, so a reader sees the old one or
// the new one. INVALID_ARGUMENT: the file has a key of that name, or an error.
absl::Status AddKey(const std::string& path, KeyEntry entry, std::string_view key);

}  // namespace moestro::access
