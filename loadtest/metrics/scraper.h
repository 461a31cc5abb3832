// Scrapes the /metrics of the roles while a test runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace moestro::loadtest {

struct MetricPoint {
  double at = 0;  // seconds since the scraper started
  double value = 0;
};
struct Scrapes {
  std::string endpoint;                                    // as the user named it
  std::map<std::string, std::vector<MetricPoint>> series;  // metric → values in order of time
  int64_t failed = 0;                                      // scrapes that got no answer
  std::string last_error;
};

class Scraper {
 public:
  using Fetch = std::function<absl::StatusOr<std::string>(const std::string& endpoint)>;

  // Scrapes every endpoint now, and all must answer. Then scrapes every `interval_seconds` in a separate thread.
  static absl::StatusOr<std::unique_ptr<Scraper>> Begin(const std::vector<std::string>& endpoints,
                                                        double interval_seconds, Fetch fetch);
  ~Scraper();

  // Scrapes once more, returns the results, and stops.
  std::vector<Scrapes> End();

 private:
  Scraper(const std::vector<std::string>& endpoints, Fetch fetch);
  void ScrapeAll();
  void Stop();

  const Fetch fetch_;
  const double began_;
  std::vector<Scrapes> scrapes_;  // owned by the thread while it runs
  Mutex mutex_;
  Condition stopped_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Fetches over HTTP, with a short timeout.
absl::StatusOr<std::string> FetchMetrics(const std::string& endpoint);

}  // namespace moestro::loadtest
