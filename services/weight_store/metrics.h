// The metrics of the weight store.
#pragma once

#include "common/telemetry/metrics.h"

namespace moestro::store {

struct StoreMetrics {
  explicit StoreMetrics(MetricsRegistry& registry)
      : segment_bytes(registry.AddGauge("moestro_weights_segment_bytes", "Bytes of the published weight segment")),
        load_ratio(
            registry.AddGauge("moestro_weights_load_progress_ratio", "Share of the weights in the segment, 0 to 1")),
        load_seconds(
            registry.AddGauge("moestro_weights_load_seconds", "Time the load took; 0 if the segment was adopted")),
        ready(registry.AddGauge("moestro_weights_ready", "1 when the segment is published")),
        attached(registry.AddGauge("moestro_weights_attached", "Roles that hold an attach lease")),
        huge_page_bytes(
            registry.AddGauge("moestro_weights_huge_page_bytes",
                              "Bytes of the segment in huge pages when it was loaded; after an adoption only "
                              "pages that have been touched count")) {}

  prometheus::Gauge& segment_bytes;
  prometheus::Gauge& load_ratio;
  prometheus::Gauge& load_seconds;
  prometheus::Gauge& ready;
  prometheus::Gauge& attached;
  prometheus::Gauge& huge_page_bytes;
};

}  // namespace moestro::store
