// What the HTTP front counts. All are exported from the start, at zero.
#pragma once

#include <array>
#include <map>
#include <string>

#include "common/telemetry/metrics.h"
#include "services/router/http/endpoints.h"
#include "services/router/http/transport.h"

namespace moestro::router {

class HttpMetrics {
 public:
  explicit HttpMetrics(MetricsRegistry& registry);  // the registry must outlive this

  // Call it once, before the first request.
  void AddEndpoints(const Endpoints& endpoints);

  // A request that has ended. `path`: of its endpoint; any other text counts as "other". `status`: of the answer, 0 if
  // the client did not get all of it.
  void CountRequest(const std::string& path, int status);
  void CountHandshake(Opening failure) { handshakes_failed_[static_cast<size_t>(failure)]->Increment(); }

  prometheus::Gauge& connections;
  prometheus::Counter& connections_refused;
  prometheus::Gauge& streams;
  prometheus::Counter& received_bytes;
  prometheus::Counter& sent_bytes;
  // What the router adds to a generation: to its prompt, without the time in the line, and to each token of a stream.
  prometheus::Histogram& request_overhead;
  prometheus::Histogram& token_overhead;

 private:
  using ByStatus = std::array<prometheus::Counter*, 6>;  // by the first digit; 0: the client left

  void AddPath(const std::string& path);

  MetricsRegistry& registry_;
  std::map<std::string, ByStatus> requests_;
  std::array<prometheus::Counter*, kOpenings> handshakes_failed_{};
};

}  // namespace moestro::router
