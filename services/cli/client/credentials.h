// How a client shows who it is, and knows the server.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace moestro {
class FlagSet;
}  // namespace moestro

namespace moestro::cli {

struct CredentialFlags {
  std::string api_key_file;  // holds the API key; empty: none is sent
  std::string tls_ca;        // PEM file of authorities; empty: no TLS, or the system's over https
};
// --api-key-file (or MOESTRO_API_KEY_FILE) and --tls-ca (or MOESTRO_TLS_CA).
void AddCredentialFlags(FlagSet& command, CredentialFlags& flags);

// What the files hold.
struct Credentials {
  std::string api_key;      // empty: none is sent
  std::string authorities;  // PEM; empty: no TLS
};
// NOT_FOUND names a file that cannot be read; otherwise the errors of ReadApiKey.
absl::StatusOr<Credentials> ReadCredentials(const CredentialFlags& flags);

// The key of the file; empty without one. NOT_FOUND: it cannot be read; INVALID_ARGUMENT: it holds no key.
absl::StatusOr<std::string> ReadApiKey(const CredentialFlags& flags);

}  // namespace moestro::cli
