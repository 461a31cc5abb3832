#include "services/router/http/http_metrics.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace moestro::router {
namespace {

constexpr char kOther[] = "other";

// The router should add less than a millisecond.
const std::vector<double> kOverheadBuckets = {0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.1, 1};

}  // namespace

HttpMetrics::HttpMetrics(MetricsRegistry& registry)
    : connections(registry.AddGauge("moestro_http_connections", "HTTP connections that are open")),
      connections_refused(registry.AddCounter("moestro_http_connections_refused_total",
                                              "HTTP connections closed at once: too many were open")),
      streams(registry.AddGauge("moestro_http_streams", "Answers over HTTP that are being sent in pieces")),
      received_bytes(registry.AddCounter("moestro_http_received_bytes_total", "Bytes of HTTP requests, without TLS")),
      sent_bytes(registry.AddCounter("moestro_http_sent_bytes_total", "Bytes of HTTP answers, without TLS")),
      request_overhead(registry.AddHistogram(
          "moestro_http_request_overhead_seconds",
          "From the last byte of a request to the call of decode, without the time in the line", kOverheadBuckets)),
      token_overhead(registry.AddHistogram("moestro_http_token_overhead_seconds",
                                           "From a role's token to its bytes in the stream", kOverheadBuckets)),
      registry_(registry) {
  AddPath(kOther);
  for (const auto& [failure, reason] : {std::pair{Opening::kPlainHttp, "plain_http"},
                                        {Opening::kClientCertificate, "client_certificate"},
                                        {Opening::kClosed, "closed"},
                                        {Opening::kTooSlow, "too_slow"},
                                        {Opening::kFailed, "other"}}) {
    handshakes_failed_[static_cast<size_t>(failure)] = &registry.AddCounter(
        "moestro_http_handshakes_failed_total", "HTTP connections whose TLS handshake failed", {{"reason", reason}});
  }
}

void HttpMetrics::AddEndpoints(const Endpoints& endpoints) {
  for (const std::string& path : endpoints.Paths()) AddPath(path);
}

void HttpMetrics::AddPath(const std::string& path) {
  ByStatus& counters = requests_[path];
  for (size_t digit = 0; digit < counters.size(); ++digit) {
    if (digit == 1) continue;  // no answer ends with one of these
    counters[digit] = &registry_.AddCounter(
        "moestro_http_requests_total",
        "HTTP requests that have ended, by the class of the answer's status; closed: the client left before its end",
        {{"endpoint", path}, {"status", digit == 0 ? "closed" : absl::StrCat(digit, "xx")}});
  }
}

void HttpMetrics::CountRequest(const std::string& path, int status) {
  const auto found = requests_.find(path);
  const ByStatus& counters = (found != requests_.end() ? found : requests_.find(kOther))->second;
  counters[static_cast<size_t>(status) / 100]->Increment();
}

}  // namespace moestro::router
