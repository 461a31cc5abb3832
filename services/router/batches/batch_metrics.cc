#include "services/router/batches/batch_metrics.h"

#include <string>

namespace moestro::router {
namespace {

prometheus::Counter& Requests(MetricsRegistry& registry, const std::string& result) {
  return registry.AddCounter("moestro_batch_requests_total", "Requests of batches that have their result",
                             {{"result", result}});
}

prometheus::Counter& Batches(MetricsRegistry& registry, const std::string& status) {
  return registry.AddCounter("moestro_batches_total", "Batches that have ended", {{"status", status}});
}

}  // namespace

BatchMetrics::BatchMetrics(MetricsRegistry& registry)
    : unfinished(registry.AddGauge("moestro_batches_unfinished", "Batches that run or wait for their turn")),
      open_requests(registry.AddGauge("moestro_batch_requests_open", "Requests of running batches without a result")),
      file_bytes(registry.AddGauge("moestro_batch_files_bytes", "Bytes of the files of batches, on disk")),
      answered(Requests(registry, "answered")),
      failed(Requests(registry, "failed")),
      completed(Batches(registry, "completed")),
      refused(Batches(registry, "failed")),
      cancelled(Batches(registry, "cancelled")) {}

}  // namespace moestro::router
