#include "loadtest/metrics/scraper.h"

#include <chrono>
#include <utility>

#include "common/base/status.h"
#include "common/base/steady_seconds.h"
#include "common/telemetry/http_get.h"
#include "common/telemetry/prometheus_text.h"

namespace moestro::loadtest {

Scraper::Scraper(const std::vector<std::string>& endpoints, Fetch fetch)
    : fetch_(std::move(fetch)), began_(SteadySeconds()) {
  for (const std::string& endpoint : endpoints) {
    scrapes_.push_back({.endpoint = endpoint, .series = {}, .failed = 0, .last_error = {}});
  }
}

absl::StatusOr<std::unique_ptr<Scraper>> Scraper::Begin(const std::vector<std::string>& endpoints,
                                                        double interval_seconds, Fetch fetch) {
  std::unique_ptr<Scraper> scraper(new Scraper(endpoints, std::move(fetch)));
  scraper->ScrapeAll();
  for (const Scrapes& scrapes : scraper->scrapes_) {
    if (scrapes.failed > 0) return absl::UnavailableError("--metrics " + scrapes.last_error);
  }
  scraper->thread_ = std::thread([self = scraper.get(), interval = std::chrono::duration<double>(interval_seconds)] {
    MutexLock lock(self->mutex_);
    while (!self->stopped_.wait_for(lock, interval,
                                    [self]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) { return self->stop_; })) {
      lock.unlock();
      self->ScrapeAll();
      lock.lock();
    }
  });
  return scraper;
}

Scraper::~Scraper() { Stop(); }

void Scraper::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::vector<Scrapes> Scraper::End() {
  Stop();
  ScrapeAll();
  return std::move(scrapes_);
}

void Scraper::ScrapeAll() {
  for (Scrapes& scrapes : scrapes_) {
    const absl::StatusOr<std::string> text = fetch_(scrapes.endpoint);
    if (!text.ok()) {
      ++scrapes.failed;
      scrapes.last_error = std::string(text.status().message());
      continue;
    }
    const double at = SteadySeconds() - began_;
    for (const auto& [metric, value] : ParsePrometheusText(*text).values) {
      scrapes.series[metric].push_back({.at = at, .value = value});
    }
  }
}

absl::StatusOr<std::string> FetchMetrics(const std::string& endpoint) {
  constexpr double kTimeoutSeconds = 3;
  MOE_ASSIGN_OR_RETURN(const Url url, ParseUrl(endpoint));
  return HttpGet(url, kTimeoutSeconds);
}

}  // namespace moestro::loadtest
