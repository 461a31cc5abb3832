// The HTTP listener: one event loop on one thread, whatever the number of clients.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/access/tls_context.h"
#include "services/router/http/callers.h"
#include "services/router/http/connection.h"

namespace moestro::router {

struct HttpOptions {
  std::string address = {};  // host:port; port 0: any free one
  // A further one takes the place of the one that is unused for longest; where none is, it is closed at once.
  size_t connections = 4096;
  size_t workers = 512;  // requests that run at once
  CallerRules callers = {};
  HttpLimits limits = {};
  const access::TlsContext* tls = nullptr;  // null: plain HTTP; must outlive the server
};

class HttpServer {
 public:
  // `clients` and the registry must outlive the server.
  HttpServer(const HttpOptions& options, SlowClients& clients, MetricsRegistry& registry);
  ~HttpServer();  // ends all requests

  // Listens and serves; call it once. UNAVAILABLE names an address that is taken.
  absl::Status Start(Endpoints endpoints);
  int port() const;  // after Start

  // For more work of a request that a worker already runs.
  WorkerPool& workers();

  // New connections and requests are refused from now on.
  void BeginDrain();
  // Waits until the running requests have ended, but no longer than `deadline`.
  void FinishDrain(std::chrono::steady_clock::time_point deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::router
