#include "common/access/tls_files.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/access/private_file.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::access {
namespace {

constexpr size_t kMaxKeyBytes = size_t{1} << 20;

// The reason that OpenSSL gives; forgets it.
std::string Reason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "unknown reason" : reason;
}

absl::Status Unusable(const char* flag, const std::string& path, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", path, ": ", what, " (", Reason(), ")"));
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (!files.enabled()) {
    if (files.key.empty() && files.client_ca.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(files.key.empty() ? "--tls-client-ca" : "--tls-key", ": is of no use without --tls-cert"));
  }
  if (files.key.empty())
    return absl::InvalidArgumentError("--tls-cert: needs --tls-key, the certificate's private key");
  MOE_RETURN_IF_ERROR(Annotate(ReadPrivateFile(files.key, kMaxKeyBytes).status(), "--tls-key " + files.key));
  ERR_clear_error();
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  MOE_CHECK(context != nullptr);
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1) {
    return Unusable("--tls-cert", files.certificate, "must be a readable file with a certificate in PEM");
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Unusable("--tls-key", files.key, "must hold the private key of --tls-cert in PEM, without a password");
  }
  if (files.client_ca.empty() || SSL_CTX_load_verify_locations(context.get(), files.client_ca.c_str(), nullptr) == 1) {
    return absl::OkStatus();
  }
  return Unusable("--tls-client-ca", files.client_ca, "must be a readable file with certificates in PEM");
}

}  // namespace moestro::access
