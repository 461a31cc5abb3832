// The metrics of the prefill role.
#pragma once

#include "common/telemetry/metrics.h"
#include "services/prefill/prefill_backends.h"

namespace moestro::prefill {

struct PrefillMetrics {
  explicit PrefillMetrics(MetricsRegistry& registry)
      : metrics_registry(registry),
        tokens(registry.AddCounter("moestro_prefill_tokens_total", "Prompt tokens computed")),
        requests(
            registry.AddCounter("moestro_prefill_requests_total", "Prompts that were run, whatever their outcome")),
        failed(
            registry.AddCounter("moestro_prefill_failed_total", "Prompts that ended with an error or were cancelled")),
        whole_machine(registry.AddCounter("moestro_prefill_whole_machine_total",
                                          "Prompts that were allowed all CPUs of the machine")),
        workers(registry.AddGauge("moestro_prefill_workers",
                                  "Worker threads of the running or last prompt: the role's own, and those on decode's "
                                  "cores while decode computes nothing")),
        seconds(registry.AddHistogram("moestro_prefill_seconds", "Time to compute a prompt, without waiting",
                                      TimeToFirstTokenBuckets())),
        queue_seconds(registry.AddHistogram("moestro_prefill_queue_seconds", "Time a prompt waited for its turn",
                                            TimeToFirstTokenBuckets())),
        running(registry.AddGauge("moestro_prefill_running", "Prompts being computed, 0 or 1")),
        waiting(registry.AddGauge("moestro_prefill_waiting", "Prompts that wait for their turn")),
        streamed_bytes(registry.AddCounter("moestro_prefill_streamed_bytes_total", "Weights copied to devices")),
        staged_bytes(registry.AddCounter("moestro_prefill_staged_bytes_total",
                                         "Of these, bytes from unregistered memory, copied through pinned buffers")),
        pageable_bytes(
            registry.AddCounter("moestro_prefill_pageable_bytes_total",
                                "Of these, bytes from unregistered memory while no buffers could be pinned")),
        stall_seconds(registry.AddCounter("moestro_prefill_stream_stall_seconds_total",
                                          "Time that the device waited for weights")),
        stream_seconds(registry.AddCounter("moestro_prefill_stream_seconds_total", "Time of streamed prompts")),
        ring_occupancy(
            registry.AddGauge("moestro_prefill_ring_occupancy_ratio",
                              "Peak share of the expert ring's slots in use during the last streamed prompt")),
        devices(registry.AddGauge("moestro_prefill_devices", "Devices that the last streamed prompt ended on")),
        fp8_activations(registry.AddGauge("moestro_prefill_fp8_activations",
                                          "1 if streamed prompts round the inputs of FP8 weights to FP8, else 0")),
        lost_devices(registry.AddCounter("moestro_prefill_devices_lost_total",
                                         "Devices that failed, stalled or were reclaimed during a prompt on several")),
        repeated_layers(registry.AddCounter("moestro_prefill_repeated_layers_total",
                                            "Layers of prompts on several devices that were begun again because a "
                                            "device failed or stalled")),
        named_devices(registry.AddGauge("moestro_prefill_devices_named", "Devices that the settings name for prompts")),
        open_devices(registry.AddGauge("moestro_prefill_devices_open", "Of these, devices that could be opened")),
        peer_exchange(registry.AddGauge("moestro_prefill_peer_exchange",
                                        "1 if devices that share a prompt copy from each other's memory, 0 if they "
                                        "exchange through the host's or are not several")),
        ring_slots(registry.AddGauge("moestro_prefill_ring_slots",
                                     "Experts that a device holds at a time; 0: no prompt is streamed")),
        registered_bytes(registry.AddGauge("moestro_prefill_registered_weight_bytes",
                                           "Weights registered for fast copies, with the device that has fewest")),
        link_bytes(registry.AddCounter("moestro_prefill_link_bytes_total",
                                       "Bytes that devices exchanged for prompts on several")),
        exchange_seconds(registry.AddCounter("moestro_prefill_exchange_seconds_total",
                                             "Time in which devices exchanged something, mostly beside computing")),
        exchange_wait_seconds(
            registry.AddCounter("moestro_prefill_exchange_wait_seconds_total",
                                "Of this, time in which a device waited with nothing else to compute")) {}

  void Update(const PrefillBackends::State& state) {
    named_devices.Set(static_cast<double>(state.devices));
    open_devices.Set(static_cast<double>(state.open));
    ring_slots.Set(static_cast<double>(state.ring_slots));
    registered_bytes.Set(static_cast<double>(state.registered_bytes));
    fp8_activations.Set(state.fp8_inputs ? 1 : 0);
    peer_exchange.Set(state.peers ? 1 : 0);
    for (const PrefillBackends::State::Share& share : state.shares) {
      metrics_registry
          .AddGauge("moestro_prefill_device_share",
                    "Part of a prompt that the device computes, in proportion to the others'; 0: it is not open",
                    {{"device", share.device}})
          .Set(static_cast<double>(share.share));
    }
  }

  MetricsRegistry& metrics_registry;
  prometheus::Counter& tokens;
  prometheus::Counter& requests;
  prometheus::Counter& failed;
  prometheus::Counter& whole_machine;
  prometheus::Gauge& workers;
  prometheus::Histogram& seconds;
  prometheus::Histogram& queue_seconds;
  prometheus::Gauge& running;
  prometheus::Gauge& waiting;
  prometheus::Counter& streamed_bytes;
  prometheus::Counter& staged_bytes;
  prometheus::Counter& pageable_bytes;
  prometheus::Counter& stall_seconds;
  prometheus::Counter& stream_seconds;
  prometheus::Gauge& ring_occupancy;
  prometheus::Gauge& devices;
  prometheus::Gauge& fp8_activations;
  prometheus::Counter& lost_devices;
  prometheus::Counter& repeated_layers;
  prometheus::Gauge& named_devices;
  prometheus::Gauge& open_devices;
  prometheus::Gauge& peer_exchange;
  prometheus::Gauge& ring_slots;
  prometheus::Gauge& registered_bytes;
  prometheus::Counter& link_bytes;
  prometheus::Counter& exchange_seconds;
  prometheus::Counter& exchange_wait_seconds;
};

}  // namespace moestro::prefill
