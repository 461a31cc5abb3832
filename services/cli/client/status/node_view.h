// The state of a node at one moment, and the change between two. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/telemetry/prometheus_text.h"

namespace moestro::cli::status {

struct RoleLook {
  bool up = false;       // answers on its socket
  bool serving = false;  // by its health service
  std::optional<ScrapedMetrics> metrics;
};

struct NodeModel {
  std::string name;
  std::string family;
  std::string fingerprint;
  int64_t segment_bytes = 0;
};

struct Look {
  double at = 0;                          // seconds of a monotonic clock
  std::map<std::string, RoleLook> roles;  // by name
  std::optional<NodeModel> model;         // as reported by the router
};

struct Latency {
  int64_t count = 0;
  std::optional<double> p50;  // seconds
  std::optional<double> p90;
};

// Between two looks, and since the router started.
struct LatencyPair {
  Latency interval;
  Latency total;
};

struct RoleView {
  bool up = false;
  bool serving = false;
  bool has_metrics = false;
  std::optional<double> private_bytes;
};

// Values from metrics are absent if the role has none.
struct NodeView {
  std::map<std::string, RoleView> roles;
  std::optional<NodeModel> model;
  std::optional<double> load_progress;  // 0 to 1; 1 once the weights are published

  struct Pages {
    int64_t total = 0;
    int64_t leased = 0;  // by requests, or draining
    int64_t cached = 0;  // held only by the prefix cache
    int64_t free = 0;    // empty
  };
  std::optional<Pages> pages;
  std::optional<double> running;
  std::optional<double> waiting;
  std::optional<double> batch_size;

  // Of prefill, where its settings name devices.
  struct Devices {
    int64_t named = 0;
    int64_t open = 0;
    int64_t ring_slots = 0;                           // experts that each holds at a time; 0: no prompt is streamed
    std::optional<double> registered = std::nullopt;  // share of the weights that is copied fast
    int64_t of_last_prompt = 0;                       // that was streamed; 0: none yet
    bool peers = false;                               // they copy from each other's memory
    std::map<std::string, int64_t> shares = {};       // of a prompt, by device; only of those that are open
  };
  std::optional<Devices> prefill_devices;
  std::optional<bool> decode_device;  // it computes with one

  double interval_seconds = 0;              // between the looks; 0: only one look
  std::optional<double> tokens_per_second;  // generated within the interval
  std::optional<LatencyPair> first_token;
  std::optional<LatencyPair> inter_token;

  bool serving() const;  // as the router reports
};

// `before`: an earlier look at the same node; null: none.
NodeView Compare(const Look& now, const Look* before);

}  // namespace moestro::cli::status
