// Prometheus metrics: one registry and one /metrics endpoint per process. Each process defines a struct of its metric
// families, creates it in main and passes it to the logic; there are no global metrics.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro {

class MetricsRegistry {  // thread-safe; the metrics live as long as the registry
 public:
  // Every metric has the label role="<role>", and model_name once it is known.
  explicit MetricsRegistry(const std::string& role);
  ~MetricsRegistry();

  using Labels = std::map<std::string, std::string>;
  // Names begin with moestro_ and end in the unit. The series exists from now on, starting at zero.
  prometheus::Counter& AddCounter(const std::string& name, const std::string& help, const Labels& labels = {});
  prometheus::Gauge& AddGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      const std::vector<double>& bounds, const Labels& labels = {});

  // The name of the served model, as clients see it. A process has one at a time: a new name replaces the old one in
  // every series.
  void SetModelName(const std::string& name);

  // What /metrics says now, in Prometheus' text format.
  std::string Text() const;

  // Serves http://<address>/metrics, address = host:port. UNAVAILABLE names an address that cannot be bound.
  absl::Status Serve(const std::string& address);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Bucket bounds in seconds: vLLM's, plus the service-level targets of 30 s to the first token and 0.05 s between
// tokens. A histogram shows compliance with a target only if the target is a bound.
std::vector<double> TimeToFirstTokenBuckets();
std::vector<double> InterTokenBuckets();
std::vector<double> RequestSecondsBuckets();
// Powers of two from 1 to 131072.
std::vector<double> TokenCountBuckets();

}  // namespace moestro
