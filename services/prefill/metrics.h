// The metrics of the prefill role.
#pragma once

#include "common/telemetry/metrics.h"

namespace moestro {

struct PrefillMetrics {
  explicit PrefillMetrics(MetricsRegistry& registry)
      : tokens(registry.AddCounter("moestro_prefill_tokens_total", "Prompt tokens computed")),
        requests(registry.AddCounter("moestro_prefill_requests_total", "Prompts that were run, however they ended")),
        failed(
            registry.AddCounter("moestro_prefill_failed_total", "Prompts that ended with an error or were given up")),
        whole_machine(registry.AddCounter("moestro_prefill_whole_machine_total",
                                          "Prompts that were allowed all CPUs of the machine")),
        seconds(registry.AddHistogram("moestro_prefill_seconds", "Time to compute a prompt, without waiting",
                                      TimeToFirstTokenBuckets())),
        queue_seconds(registry.AddHistogram("moestro_prefill_queue_seconds", "Time a prompt waited for its turn",
                                            TimeToFirstTokenBuckets())),
        running(registry.AddGauge("moestro_prefill_running", "Prompts being computed, 0 or 1")),
        waiting(registry.AddGauge("moestro_prefill_waiting", "Prompts that wait for their turn")),
        weights_attached(registry.AddGauge("moestro_weights_attached_bytes", "Bytes of the mapped weight segment")),
        private_bytes(registry.AddGauge("moestro_process_private_bytes",
                                        "Memory of the process itself: neither files nor shared memory")) {}

  prometheus::Counter& tokens;
  prometheus::Counter& requests;
  prometheus::Counter& failed;
  prometheus::Counter& whole_machine;
  prometheus::Histogram& seconds;
  prometheus::Histogram& queue_seconds;
  prometheus::Gauge& running;
  prometheus::Gauge& waiting;
  prometheus::Gauge& weights_attached;
  prometheus::Gauge& private_bytes;
};

}  // namespace moestro
