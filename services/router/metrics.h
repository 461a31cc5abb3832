// Every metric family of the router. All are exported from the start, at zero. The server creates the object and
// injects it.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/inference/prompt_costs.h"
#include "common/telemetry/metrics.h"
#include "services/router/admission/roles.h"
#include "services/router/request/types.h"

namespace moestro::router {

enum class RequestKind { kGenerate = 0, kScore = 1 };

struct RouterMetrics {
  explicit RouterMetrics(MetricsRegistry& registry);  // the registry must outlive this

  // Counts a request that has ended. For a successful one, also records its times and tokens.
  void CountRequest(RequestKind kind, const absl::Status& status, const RequestSummary& summary);
  // Generations that were admitted, by their first path.
  prometheus::Counter& Admitted(PrefillPath path) { return *admitted_[static_cast<size_t>(path)]; }
  // Time to the first token, without waiting for pages or a place, over what was predicted.
  prometheus::Histogram& PredictionRatio(PromptWay way) { return *prediction_ratio_[static_cast<size_t>(way)]; }
  // What predictions are multiplied with.
  prometheus::Gauge& PredictionCorrection(PromptWay way) { return *prediction_correction_[static_cast<size_t>(way)]; }

  // By the path that led to the token.
  prometheus::Histogram& TimeToFirstToken(PrefillPath path) { return *time_to_first_token_[static_cast<size_t>(path)]; }
  // Counts as late, beside the time itself, what takes longer than the objective and twice the node's own forecast: no
  // machine is blamed for being slow. `predicted`: for the prompt; nullopt: nothing was.
  void ObserveFirstToken(PrefillPath path, double seconds, std::optional<double> predicted);
  void ObserveNextToken(double seconds);
  // What a step of decode takes with all places taken; 0: not known.
  void SetStepSeconds(double seconds) { step_seconds_ = seconds; }

  prometheus::Gauge& running;
  prometheus::Gauge& waiting;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& prompt_tokens_cached;
  prometheus::Counter& generation_tokens;
  prometheus::Counter& resumed;
  prometheus::Counter& preempted;
  prometheus::Counter& clients_stalled;
  prometheus::Counter& clients_behind;
  prometheus::Counter& late_first_tokens;
  prometheus::Counter& late_tokens;
  prometheus::Histogram& inter_token_latency;
  prometheus::Histogram& request_seconds;
  prometheus::Histogram& queue_seconds;
  prometheus::Histogram& prefill_seconds;
  prometheus::Histogram& decode_seconds;
  prometheus::Histogram& request_prompt_tokens;
  prometheus::Histogram& request_generation_tokens;
  std::array<prometheus::Gauge*, kServingRoles.size()> role_up;
  prometheus::Gauge& weight_store_up;
  prometheus::Gauge& tls_expires;
  prometheus::Counter& tls_reloads_failed;

 private:
  using Outcomes = std::map<std::string, prometheus::Counter*>;  // by finish reason or error code
  std::array<Outcomes, 2> requests_;                             // by RequestKind
  std::array<prometheus::Counter*, kPrefillPaths.size()> admitted_{};
  std::array<prometheus::Histogram*, kPrefillPaths.size()> time_to_first_token_{};
  std::array<prometheus::Histogram*, kPromptWays.size()> prediction_ratio_{};
  std::array<prometheus::Gauge*, kPromptWays.size()> prediction_correction_{};
  std::atomic<double> step_seconds_ = 0;
};

// Increments a gauge for as long as this object lives.
class GaugeHold {
 public:
  explicit GaugeHold(prometheus::Gauge& gauge) : gauge_(gauge) { gauge_.Increment(); }
  ~GaugeHold() { gauge_.Decrement(); }
  GaugeHold(const GaugeHold&) = delete;
  GaugeHold& operator=(const GaugeHold&) = delete;

 private:
  prometheus::Gauge& gauge_;
};

}  // namespace moestro::router
