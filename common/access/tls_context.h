// What a TLS server needs for each connection: made of its files, and made again when they change.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/access/file_version.h"
#include "common/access/tls_files.h"
#include "common/base/mutex.h"

namespace moestro::access {

// What a server needs to use the files: TLS 1.2 or 1.3. REQUIRES: TLS is enabled. The errors of CheckTlsFiles.
absl::StatusOr<std::shared_ptr<SSL_CTX>> MakeTlsContext(const TlsFiles& files);

class TlsContext {
 public:
  explicit TlsContext(TlsFiles files) : files_(std::move(files)) {}

  bool enabled() const { return files_.enabled(); }

  // Reads the files. Call it once, before the first connection. The errors of MakeTlsContext.
  absl::Status Load();

  // Reads the files again if they have changed and then stayed the same between two calls, because a certificate and
  // its key are not replaced at once. Files with an error change nothing. True: the new ones are in use. Cheap: call it
  // about once a second. One thread at a time.
  absl::StatusOr<bool> Reload();

  // For the next connection. REQUIRES: Load was called. Thread-safe.
  std::shared_ptr<SSL_CTX> Current() const;

  // When the certificate in use expires. REQUIRES: Load was called.
  absl::Time expires() const;

 private:
  using Versions = std::array<FileVersion, 3>;
  Versions CurrentVersions() const;
  absl::Status Read();

  const TlsFiles files_;
  Versions seen_;  // at the last call of Reload
  Versions read_;  // of the files that were read last
  mutable Mutex mutex_;
  std::shared_ptr<SSL_CTX> context_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::access
