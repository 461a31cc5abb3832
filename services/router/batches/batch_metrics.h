// What batches count. All are exported from the start, at zero.
#pragma once

#include "common/telemetry/metrics.h"

namespace moestro::router {

struct BatchMetrics {
  explicit BatchMetrics(MetricsRegistry& registry);  // the registry must outlive this

  prometheus::Gauge& unfinished;  // batches
  prometheus::Gauge& open_requests;
  prometheus::Gauge& file_bytes;
  prometheus::Counter& answered;  // requests of batches
  prometheus::Counter& failed;
  prometheus::Counter& completed;  // batches
  prometheus::Counter& refused;
  prometheus::Counter& cancelled;
};

}  // namespace moestro::router
