#include "common/access/tls_context.h"

#include <openssl/err.h>

#include <ctime>
#include <utility>

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

absl::StatusOr<std::shared_ptr<SSL_CTX>> MakeTlsContext(const TlsFiles& files) {
  if (files.key.empty())
    return absl::InvalidArgumentError("--tls-cert: needs --tls-key, the certificate's private key");
  MOE_RETURN_IF_ERROR(Annotate(ReadPrivateFile(files.key, kMaxKeyBytes).status(), "--tls-key " + files.key));
  ERR_clear_error();
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  MOE_CHECK(context != nullptr && SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1);
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1) {
    return Unusable("--tls-cert", files.certificate, "must be a readable file with a certificate in PEM");
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Unusable("--tls-key", files.key, "must hold the private key of --tls-cert in PEM, without a password");
  }
  // A client may make a server do work again and again, or hold its sessions: neither.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  if (files.client_ca.empty()) return context;
  STACK_OF(X509_NAME)* const authorities = SSL_load_client_CA_file(files.client_ca.c_str());
  if (authorities == nullptr || SSL_CTX_load_verify_locations(context.get(), files.client_ca.c_str(), nullptr) != 1) {
    sk_X509_NAME_pop_free(authorities, X509_NAME_free);
    return Unusable("--tls-client-ca", files.client_ca, "must be a readable file with certificates in PEM");
  }
  SSL_CTX_set_client_CA_list(context.get(), authorities);  // takes it; clients choose a certificate by it
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // No session continues: its certificate might have expired meanwhile.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  return context;
}

TlsContext::Versions TlsContext::CurrentVersions() const {
  return {FileVersion::Of(files_.certificate), FileVersion::Of(files_.key), FileVersion::Of(files_.client_ca)};
}

absl::Status TlsContext::Load() {
  seen_ = CurrentVersions();
  return Read();
}

absl::StatusOr<bool> TlsContext::Reload() {
  if (!enabled()) return false;
  const Versions now = CurrentVersions();
  const bool settled = now == seen_;
  seen_ = now;
  if (!settled || now == read_) return false;
  MOE_RETURN_IF_ERROR(Read());
  return true;
}

absl::Status TlsContext::Read() {
  read_ = seen_;  // not those of now: if they change while they are read, they are read again
  MOE_ASSIGN_OR_RETURN(std::shared_ptr<SSL_CTX> context, MakeTlsContext(files_));
  MutexLock lock(mutex_);
  context_ = std::move(context);
  return absl::OkStatus();
}

std::shared_ptr<SSL_CTX> TlsContext::Current() const {
  MutexLock lock(mutex_);
  return context_;
}

absl::Time TlsContext::expires() const {
  std::tm time{};
  const X509* const certificate = SSL_CTX_get0_certificate(Current().get());
  MOE_CHECK(certificate != nullptr && ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &time) == 1);
  return absl::FromTM(time, absl::UTCTimeZone());
}

}  // namespace moestro::access
