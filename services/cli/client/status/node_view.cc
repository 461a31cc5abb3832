#include "services/cli/client/status/node_view.h"

#include <algorithm>
#include <cmath>

namespace moestro::cli::status {
namespace {

const ScrapedMetrics* MetricsOf(const Look& look, const std::string& role) {
  const auto found = look.roles.find(role);
  return found != look.roles.end() && found->second.metrics ? &*found->second.metrics : nullptr;
}

std::optional<double> Value(const ScrapedMetrics* metrics, const std::string& name) {
  if (metrics == nullptr) return std::nullopt;
  const auto found = metrics->values.find(name);
  return found == metrics->values.end() ? std::nullopt : std::optional(found->second);
}

Latency Summarize(const HistogramCounts& histogram) {
  return {.count = std::llround(histogram.count()), .p50 = Quantile(histogram, 0.5), .p90 = Quantile(histogram, 0.9)};
}

std::optional<LatencyPair> CompareLatency(const ScrapedMetrics* now, const ScrapedMetrics* before,
                                          const std::string& name) {
  if (now == nullptr) return std::nullopt;
  const auto found = now->histograms.find(name);
  if (found == now->histograms.end()) return std::nullopt;
  LatencyPair pair{.interval = {}, .total = Summarize(found->second)};
  if (before == nullptr) return pair;
  const auto earlier = before->histograms.find(name);
  if (earlier != before->histograms.end()) pair.interval = Summarize(Since(found->second, earlier->second));
  return pair;
}

std::optional<NodeView::Pages> PagesOf(const ScrapedMetrics* decode) {
  const std::optional<double> total = Value(decode, "moestro_kv_pages");
  const std::optional<double> available = Value(decode, "moestro_kv_pages_free");  // includes the cached ones
  const std::optional<double> cached = Value(decode, "moestro_kv_pages_cached");
  if (!total || !available || !cached) return std::nullopt;
  return NodeView::Pages{.total = std::llround(*total),
                         .leased = std::llround(*total - *available),
                         .cached = std::llround(*cached),
                         .free = std::llround(*available - *cached)};
}

std::optional<NodeView::Devices> DevicesOf(const ScrapedMetrics* prefill, const std::optional<NodeModel>& model) {
  const auto whole = [&](const char* name) {
    return std::llround(Value(prefill, std::string("moestro_prefill_") + name).value_or(0));
  };
  NodeView::Devices devices{.named = whole("devices_named"),
                            .open = whole("devices_open"),
                            .ring_slots = whole("ring_slots"),
                            .of_last_prompt = whole("devices")};
  if (devices.named == 0) return std::nullopt;
  devices.peers = whole("peer_exchange") > 0;
  const auto shares = prefill->by_device.find("moestro_prefill_device_share");
  if (shares != prefill->by_device.end()) {
    for (const auto& [device, share] : shares->second) {
      if (share > 0) devices.shares[device] = std::llround(share);
    }
  }
  if (model && model->segment_bytes > 0) {
    devices.registered = std::min(
        1.0, static_cast<double>(whole("registered_weight_bytes")) / static_cast<double>(model->segment_bytes));
  }
  return devices;
}

// A counter that fell has restarted with its process.
std::optional<double> Rate(const std::optional<double>& now, const std::optional<double>& before, double seconds) {
  if (!now || !before || seconds <= 0) return std::nullopt;
  return (*now < *before ? *now : *now - *before) / seconds;
}

}  // namespace

bool NodeView::serving() const {
  const auto router = roles.find("router");
  return router != roles.end() && router->second.serving;
}

NodeView Compare(const Look& now, const Look* before) {
  NodeView view;
  view.model = now.model;
  for (const auto& [name, role] : now.roles) {
    view.roles[name] = {.up = role.up,
                        .serving = role.serving,
                        .has_metrics = role.metrics.has_value(),
                        .private_bytes = Value(MetricsOf(now, name), "moestro_process_private_bytes")};
  }
  const ScrapedMetrics* store = MetricsOf(now, "weight_store");
  view.load_progress = Value(store, "moestro_weights_load_progress_ratio");
  if (Value(store, "moestro_weights_ready").value_or(0) > 0) view.load_progress = 1;

  const ScrapedMetrics* decode = MetricsOf(now, "decode");
  view.pages = PagesOf(decode);
  view.batch_size = Value(decode, "moestro_decode_batch_size");

  view.prefill_devices = DevicesOf(MetricsOf(now, "prefill"), now.model);
  if (const std::optional<double> device = Value(decode, "moestro_decode_device")) view.decode_device = *device > 0;

  const ScrapedMetrics* router = MetricsOf(now, "router");
  const ScrapedMetrics* router_before = before == nullptr ? nullptr : MetricsOf(*before, "router");
  view.running = Value(router, "moestro_requests_running");
  view.waiting = Value(router, "moestro_requests_waiting");
  if (before != nullptr) view.interval_seconds = std::max(0.0, now.at - before->at);
  constexpr const char* kTokens = "moestro_generation_tokens_total";
  view.tokens_per_second = Rate(Value(router, kTokens), Value(router_before, kTokens), view.interval_seconds);
  view.first_token = CompareLatency(router, router_before, "moestro_time_to_first_token_seconds");
  view.inter_token = CompareLatency(router, router_before, "moestro_inter_token_latency_seconds");
  return view;
}

}  // namespace moestro::cli::status
