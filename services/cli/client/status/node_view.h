// What is known of a node at one moment, and what two such looks tell. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/telemetry/prometheus_text.h"

namespace moestro::status {

struct RoleLook {
  bool up = false;       // answers on its socket
  bool serving = false;  // by its health service
  std::optional<ScrapedMetrics> metrics;
};

struct Model {
  std::string name;
  std::string family;
  std::string fingerprint;
  int64_t segment_bytes = 0;
};

struct Look {
  double at = 0;                          // seconds of a monotonic clock
  std::map<std::string, RoleLook> roles;  // by name
  std::optional<Model> model;             // the router knows it
};

struct Latency {
  int64_t count = 0;
  std::optional<double> p50;  // seconds
  std::optional<double> p90;
};

// Between two looks, and since the router has been started.
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

// What stands in metrics is absent when the role has none.
struct NodeView {
  std::map<std::string, RoleView> roles;
  std::optional<Model> model;
  std::optional<double> load_progress;  // 0 to 1; 1 from the moment the weights are published

  struct Pages {
    int64_t total = 0;
    int64_t leased = 0;  // by requests, or draining
    int64_t cached = 0;  // only the prefix cache holds them
    int64_t free = 0;    // hold nothing
  };
  std::optional<Pages> pages;
  std::optional<double> running;
  std::optional<double> waiting;
  std::optional<double> batch_size;

  double interval_seconds = 0;              // between the looks; 0: there was only one
  std::optional<double> tokens_per_second;  // generated within the interval
  std::optional<LatencyPair> first_token;
  std::optional<LatencyPair> inter_token;

  bool serving() const;  // the router says so
};

// `before`: an earlier look at the same node; null: there was none.
NodeView Compare(const Look& now, const Look* before);

}  // namespace moestro::status
