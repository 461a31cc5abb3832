#include "common/access/tls_files.h"

#include "absl/strings/str_cat.h"
#include "common/access/tls_context.h"

namespace moestro::access {

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (files.enabled()) return MakeTlsContext(files).status();
  if (files.key.empty() && files.client_ca.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(files.key.empty() ? "--tls-client-ca" : "--tls-key", ": is of no use without --tls-cert"));
}

}  // namespace moestro::access
