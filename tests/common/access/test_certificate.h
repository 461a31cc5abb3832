// Makes a certificate that signs itself, and its key.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cstdio>
#include <memory>
#include <string>

#include "common/access/tls_files.h"
#include "common/base/check.h"

namespace moestro::access {

// Writes two files in PEM. `serial` tells one certificate from the next; it is valid for an hour.
inline void WriteCertificate(const TlsFiles& to, int serial) {
  const auto open = [](const std::string& path) {
    std::remove(path.c_str());
    FILE* const file = std::fopen(path.c_str(), "w");
    MOE_CHECK(file != nullptr && chmod(path.c_str(), 0600) == 0);
    return std::unique_ptr<FILE, decltype(&std::fclose)>(file, std::fclose);
  };
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  MOE_CHECK(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
  MOE_CHECK(PEM_write_PrivateKey(open(to.key).get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
  MOE_CHECK(PEM_write_X509(open(to.certificate).get(), certificate.get()) == 1);
}

}  // namespace moestro::access
