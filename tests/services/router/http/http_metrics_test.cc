#include "services/router/http/http_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::router {
namespace {

using ::testing::HasSubstr;

class HttpMetricsTest : public ::testing::Test {
 protected:
  HttpMetricsTest() {
    Endpoints endpoints;
    endpoints.Add({.method = "GET", .path = "/a", .handle = {}});
    endpoints.Add({.method = "POST", .path = "/a", .handle = {}});
    metrics_.AddEndpoints(endpoints);
  }
  static std::string Requests(const std::string& path, const std::string& status, int count) {
    return "moestro_http_requests_total{role=\"router\",endpoint=\"" + path + "\",status=\"" + status + "\"} " +
           std::to_string(count) + "\n";
  }

  MetricsRegistry registry_{"router"};
  HttpMetrics metrics_{registry_};
};

TEST_F(HttpMetricsTest, AllIsThereAtZero) {
  const std::string text = registry_.Text();
  for (const char* path : {"/a", "other"}) {
    for (const char* status : {"2xx", "3xx", "4xx", "5xx", "closed"}) {
      EXPECT_THAT(text, HasSubstr(Requests(path, status, 0)));
    }
  }
  for (const char* reason : {"plain_http", "client_certificate", "closed", "too_slow", "other"}) {
    EXPECT_THAT(text, HasSubstr("{role=\"router\",reason=\"" + std::string(reason) + "\"} 0\n"));
  }
}

TEST_F(HttpMetricsTest, CountsByEndpointAndClass) {
  metrics_.CountRequest("/a", 200);
  metrics_.CountRequest("/a", 204);
  metrics_.CountRequest("/a", 499);
  metrics_.CountRequest("/a", 0);
  metrics_.CountRequest("", 404);
  metrics_.CountHandshake(Opening::kClientCertificate);
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr(Requests("/a", "2xx", 2)));
  EXPECT_THAT(text, HasSubstr(Requests("/a", "4xx", 1)));
  EXPECT_THAT(text, HasSubstr(Requests("/a", "closed", 1)));
  EXPECT_THAT(text, HasSubstr(Requests("other", "4xx", 1)));
  EXPECT_THAT(text, HasSubstr("{role=\"router\",reason=\"client_certificate\"} 1\n"));
}

}  // namespace
}  // namespace moestro::router
