#include "services/router/http/frames.h"

#include "services/router/http/errors.h"

namespace moestro::router {
namespace {

double PerSecond(uint64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

}  // namespace

std::string Dump(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

std::string SseFrame(std::string_view data) { return std::string("data: ").append(data).append("\n\n"); }

std::string SseError(const absl::Status& status) { return SseFrame(OpenAiError(status).body); }

HttpHeaders SseHeaders() {
  return {{"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}};  // proxies pass each frame on at once
}

absl::Status BeginSse(std::chrono::seconds keep_alive, const StreamFields& fields, Response& response) {
  const bool comments = fields.keep_alive && keep_alive.count() > 0;
  return response.Begin(SseHeaders(), comments ? kSseComment : "", keep_alive);
}

OrderedJson ProgressJson(const PrefillProgress& progress) {
  return {{"total", progress.total_tokens}, {"processed", progress.done_tokens}};
}

std::string FinishWord(FinishReason reason) { return reason == FinishReason::kStop ? "stop" : "length"; }

std::string SystemFingerprint(const ServedModel& model) { return "fp_" + model.fingerprint.substr(0, 12); }

OrderedJson UsageSum::ToJson() const {
  return {{"prompt_tokens", prompt_},
          {"completion_tokens", generated_},
          {"total_tokens", prompt_ + generated_},
          {"prompt_tokens_details", {{"cached_tokens", cached_}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning_}}}};
}

OrderedJson UsageSum::ToResponsesJson() const {
  return {{"input_tokens", prompt_},
          {"input_tokens_details", {{"cached_tokens", cached_}}},
          {"output_tokens", generated_},
          {"output_tokens_details", {{"reasoning_tokens", reasoning_}}},
          {"total_tokens", prompt_ + generated_}};
}

OrderedJson Timings(const RequestSummary& summary) {
  const uint32_t computed = summary.prompt_tokens - summary.cached_tokens;
  return {{"prompt_n", computed},
          {"cache_n", summary.cached_tokens},
          {"queue_ms", 1000 * summary.queue_seconds},
          {"prompt_ms", 1000 * summary.prefill_seconds},
          {"prompt_per_second", PerSecond(computed, summary.prefill_seconds)},
          {"predicted_n", summary.completion_tokens},
          {"predicted_ms", 1000 * summary.decode_seconds},
          {"predicted_per_second", PerSecond(summary.completion_tokens, summary.decode_seconds)},
          {"path", PathName(summary.path)},
          {"prefill_activations", summary.fp8_activations ? "fp8" : "bf16"},
          {"resumed", summary.resumed}};
}

}  // namespace moestro::router
