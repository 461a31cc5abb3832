// The files of a TLS server, in PEM.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace moestro::access {

struct TlsFiles {
  std::string certificate;  // the server's, then those that lead to its authority; empty: no TLS
  std::string key;          // its private key
  std::string client_ca;    // clients need a certificate of one of these authorities; empty: they need none

  bool enabled() const { return !certificate.empty(); }
};

// OK if a server can use the files, or if TLS is not enabled. Otherwise names the flag (--tls-cert, --tls-key,
// --tls-client-ca), the file and the remedy. Others must not be able to read the private key.
absl::Status CheckTlsFiles(const TlsFiles& files);

}  // namespace moestro::access
