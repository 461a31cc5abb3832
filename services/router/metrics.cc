#include "services/router/metrics.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace moestro::router {
namespace {

// The objectives (deploy/prometheus/rules/slo.yml): what people who wait for an answer find quick.
constexpr double kFirstTokenSeconds = 30;
constexpr double kNextTokenSeconds = 0.05;
// A forecast may be wrong by less.
constexpr double kLateOverForecast = 2;

// A finish reason, or the canonical error code in lower case.
std::string Outcome(RequestKind kind, const absl::Status& status, FinishReason reason) {
  if (!status.ok()) return absl::AsciiStrToLower(absl::StatusCodeToString(status.code()));
  if (kind == RequestKind::kScore) return "scored";
  return reason == FinishReason::kStop ? "stop" : "length";
}

// Codes that a request can end with. Any other counts as "internal".
constexpr const char* kErrorOutcomes[] = {"cancelled",      "invalid_argument",   "deadline_exceeded",   "aborted",
                                          "already_exists", "resource_exhausted", "failed_precondition", "unavailable",
                                          "internal"};

prometheus::Counter& RequestCounter(MetricsRegistry& registry, const std::string& method, const std::string& outcome) {
  return registry.AddCounter("moestro_requests_total", "Requests that have ended, by finish reason or error code",
                             {{"method", method}, {"finish_reason", outcome}});
}

prometheus::Gauge& RoleUp(MetricsRegistry& registry, const std::string& peer) {
  return registry.AddGauge("moestro_role_up", "1 while the role answers as serving", {{"peer", peer}});
}

prometheus::Counter& SlowClients(MetricsRegistry& registry, const std::string& reason) {
  return registry.AddCounter(
      "moestro_slow_clients_total",
      "Calls ended because the client took no reply for too long (stalled), or because too many replies waited for it "
      "(behind)",
      {{"reason", reason}});
}

}  // namespace

RouterMetrics::RouterMetrics(MetricsRegistry& registry)
    : running(registry.AddGauge("moestro_requests_running", "Requests that hold KV pages")),
      waiting(registry.AddGauge("moestro_requests_waiting", "Requests that wait for KV pages")),
      prompt_tokens(registry.AddCounter("moestro_prompt_tokens_total", "Prompt tokens of admitted requests")),
      prompt_tokens_cached(registry.AddCounter("moestro_prompt_tokens_cached_total",
                                               "Prompt tokens of admitted generations that the prefix cache held")),
      generation_tokens(registry.AddCounter("moestro_generation_tokens_total", "Tokens generated")),
      resumed(registry.AddCounter("moestro_request_resumed_total",
                                  "Times a request resumed after a role died or its pages were taken")),
      preempted(registry.AddCounter("moestro_request_preempted_total",
                                    "Times a request lost its pages to an older one and resumed later")),
      clients_stalled(SlowClients(registry, "stalled")),
      clients_behind(SlowClients(registry, "behind")),
      late_first_tokens(registry.AddCounter(
          "moestro_time_to_first_token_late_total",
          "First tokens that came later than 30 s, and than twice what was predicted for their prompt")),
      late_tokens(
          registry.AddCounter("moestro_inter_token_late_total",
                              "Tokens that came more than 0.05 s after the one before, and more than twice what "
                              "decode's full batch takes for a step")),
      inter_token_latency(registry.AddHistogram("moestro_inter_token_latency_seconds",
                                                "Time between two tokens of a request", InterTokenBuckets())),
      request_seconds(registry.AddHistogram("moestro_request_seconds", "From arrival to the end of the request",
                                            RequestSecondsBuckets())),
      queue_seconds(registry.AddHistogram(
          "moestro_request_queue_seconds",
          "From arrival until KV pages were granted, and from then on for a place in decode's batch",
          RequestSecondsBuckets())),
      prefill_seconds(registry.AddHistogram("moestro_request_prefill_seconds",
                                            "From the end of these waits to the first token", RequestSecondsBuckets())),
      decode_seconds(registry.AddHistogram("moestro_request_decode_seconds", "From the first token to the last",
                                           RequestSecondsBuckets())),
      request_prompt_tokens(
          registry.AddHistogram("moestro_request_prompt_tokens", "Prompt tokens of a request", TokenCountBuckets())),
      request_generation_tokens(registry.AddHistogram("moestro_request_generation_tokens",
                                                      "Tokens generated for a request", TokenCountBuckets())),
      role_up{&RoleUp(registry, "prefill"), &RoleUp(registry, "decode")},
      weight_store_up(RoleUp(registry, "weight_store")),
      tls_expires(registry.AddGauge("moestro_tls_certificate_expires_seconds",
                                    "When the certificate in use expires, in seconds since 1970; 0: no TLS")),
      tls_reloads_failed(registry.AddCounter("moestro_tls_reloads_failed_total",
                                             "Times that changed files of TLS had an error; those before stay")) {
  for (const char* outcome : kErrorOutcomes) {
    requests_[0][outcome] = &RequestCounter(registry, "generate", outcome);
    requests_[1][outcome] = &RequestCounter(registry, "score", outcome);
  }
  for (const char* outcome : {"stop", "length"}) requests_[0][outcome] = &RequestCounter(registry, "generate", outcome);
  requests_[1]["scored"] = &RequestCounter(registry, "score", "scored");
  for (const PrefillPath path : kPrefillPaths) {
    const MetricsRegistry::Labels labels{{"path", PathName(path)}};
    admitted_[static_cast<size_t>(path)] =
        &registry.AddCounter("moestro_request_path_total", "Generations admitted, by the path of their prompt", labels);
    time_to_first_token_[static_cast<size_t>(path)] = &registry.AddHistogram(
        "moestro_time_to_first_token_seconds", "From arrival to the first token", TimeToFirstTokenBuckets(), labels);
  }
  for (const PromptWay way : kPromptWays) {
    const MetricsRegistry::Labels labels{{"way", WayName(way)}};
    prediction_ratio_[static_cast<size_t>(way)] = &registry.AddHistogram(
        "moestro_path_prediction_ratio",
        "Time to the first token, without waiting for KV pages, over the prediction that chose the prompt's way",
        {0.25, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 4}, labels);
    prometheus::Gauge*& correction = prediction_correction_[static_cast<size_t>(way)];
    correction = &registry.AddGauge(
        "moestro_path_prediction_correction",
        "What predictions are multiplied with, by what prompts took: within 0.25 and 4; 1 at first", labels);
    correction->Set(1);
  }
}

void RouterMetrics::ObserveFirstToken(PrefillPath path, double seconds, std::optional<double> predicted) {
  time_to_first_token_[static_cast<size_t>(path)]->Observe(seconds);
  if (seconds > std::max(kFirstTokenSeconds, kLateOverForecast * predicted.value_or(0))) late_first_tokens.Increment();
}

void RouterMetrics::ObserveNextToken(double seconds) {
  inter_token_latency.Observe(seconds);
  if (seconds > std::max(kNextTokenSeconds, kLateOverForecast * step_seconds_)) late_tokens.Increment();
}

void RouterMetrics::CountRequest(RequestKind kind, const absl::Status& status, const RequestSummary& summary) {
  const Outcomes& outcomes = requests_[static_cast<size_t>(kind)];
  const auto found = outcomes.find(Outcome(kind, status, summary.reason));
  (found != outcomes.end() ? found : outcomes.find("internal"))->second->Increment();
  if (!status.ok()) return;
  request_seconds.Observe(summary.total_seconds);
  queue_seconds.Observe(summary.queue_seconds);
  request_prompt_tokens.Observe(summary.prompt_tokens);
  if (kind == RequestKind::kScore) return;
  request_generation_tokens.Observe(summary.completion_tokens);
  prefill_seconds.Observe(summary.prefill_seconds);
  decode_seconds.Observe(summary.decode_seconds);
}

}  // namespace moestro::router
