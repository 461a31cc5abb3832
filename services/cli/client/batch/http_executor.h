// Requests of a batch to a router's HTTP API.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/batch/batch_run.h"
#include "services/cli/client/credentials.h"

namespace moestro::cli {

// "http://HOST:PORT" or "https://HOST:PORT", perhaps with a path before /v1. INVALID_ARGUMENT names --url.
absl::StatusOr<std::string> BaseUrl(const std::string& text);

// Connections stay open between requests. Ignores proxy variables of the environment.
class HttpExecutor final : public batch::Executor {
 public:
  // `base`: of BaseUrl. `api_key`: empty: none. `tls_ca`: a PEM file of authorities; empty: those of the system.
  // `connect_seconds`: of one attempt to connect, TLS included; answers may take hours.
  HttpExecutor(std::string base, const std::string& api_key, std::string tls_ca, double connect_seconds);
  ~HttpExecutor() override;

  batch::Reply Execute(const batch::Request& request) override;
  void Cancel() override { cancelled_ = true; }

 private:
  class Connection;
  std::unique_ptr<Connection> Take();
  void PutBack(std::unique_ptr<Connection> connection);

  const std::string base_;
  const std::string authorization_;  // a header; empty: none
  const std::string tls_ca_;
  const double connect_seconds_;
  std::atomic<bool> cancelled_{false};
  Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::cli
