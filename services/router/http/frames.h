// What the OpenAI APIs share in their answers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "services/router/http/api.h"
#include "services/router/http/request_fields.h"
#include "services/router/request/types.h"
#include "services/router/text/served_model.h"

namespace moestro::router {

using OrderedJson = nlohmann::ordered_json;

// JSON text on one line. What is not UTF-8 becomes U+FFFD.
std::string Dump(const OrderedJson& json);

// A frame of a stream: "data: ...\n\n".
std::string SseFrame(std::string_view data);
std::string SseError(const absl::Status& status);
inline constexpr char kSseDone[] = "data: [DONE]\n\n";
inline constexpr char kSseComment[] = ": keep-alive\n\n";

HttpHeaders SseHeaders();

// Begins a stream of such frames, with comments while nothing else is written, if client and server want them.
absl::Status BeginSse(std::chrono::seconds keep_alive, const StreamFields& fields, Response& response);

OrderedJson ProgressJson(const PrefillProgress& progress);
std::string FinishWord(FinishReason reason);
std::string SystemFingerprint(const ServedModel& model);

// The tokens of all choices of a request. A prompt counts once, however many choices it has.
class UsageSum {
 public:
  void AddPrompt(uint32_t tokens, uint32_t cached) {
    prompt_ += tokens;
    cached_ += cached;
  }
  // `reasoning`: how many of them are reasoning.
  void AddGenerated(size_t tokens, size_t reasoning = 0) {
    generated_ += tokens;
    reasoning_ += reasoning;
  }
  OrderedJson ToJson() const;
  OrderedJson ToResponsesJson() const;  // in the words of /v1/responses

 private:
  uint64_t prompt_ = 0;
  uint64_t cached_ = 0;
  uint64_t generated_ = 0;
  uint64_t reasoning_ = 0;
};

// How long a choice took, in llama-server's words, and the path of its prompt.
OrderedJson Timings(const RequestSummary& summary);

}  // namespace moestro::router
