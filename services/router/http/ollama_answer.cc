#include "services/router/http/ollama_answer.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/status.h"
#include "services/router/http/call_arguments.h"

namespace moestro::router {
namespace {

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

class OllamaAnswer final : public ChatAnswer {
 public:
  OllamaAnswer(OllamaForm form, const OllamaRequest& request, ModelBoard::ModelPtr model, const std::string& id,
               Response& response)
      : ChatAnswer(request.chat, std::move(model), id, response), form_(form), streams_(request.stream) {}

  absl::Status Waiting() override { return Begin(); }
  absl::Status Started(size_t choice, uint32_t prompt_tokens, const AdmissionNotice& notice) override {
    MOE_RETURN_IF_ERROR(ChatAnswer::Started(choice, prompt_tokens, notice));
    return Begin();
  }
  absl::Status Prefill(size_t, const PrefillProgress&) override { return absl::OkStatus(); }

  absl::Status Finish() override {
    if (streams_ && !calls_.empty()) MOE_RETURN_IF_ERROR(Write(Line({.tool_calls = std::exchange(calls_, {})})));
    whole_.tool_calls = std::move(calls_);
    OrderedJson last = Line(whole_);
    last["done"] = true;
    last["done_reason"] = reason_ == "length" ? "length" : "stop";
    last["total_duration"] = Nanoseconds(summary_.total_seconds);
    last["load_duration"] = 0;  // the model is in memory
    last["prompt_eval_count"] = summary_.prompt_tokens;
    last["prompt_eval_duration"] = Nanoseconds(summary_.prefill_seconds);
    last["eval_count"] = summary_.completion_tokens;
    last["eval_duration"] = Nanoseconds(summary_.decode_seconds);
    return streams_ ? Write(last) : response_.SendJson(200, DumpWithArguments(last));
  }

 private:
  absl::Status Add(size_t /*choice*/, const OutputDelta& delta, const std::vector<Token>& /*tokens*/) override {
    // A client gets a call when all of it is there.
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.index == calls_.size()) {
        calls_.push_back(call);
      } else {
        calls_[call.index].arguments += call.arguments;
      }
    }
    if (delta.content.empty() && delta.reasoning.empty()) return absl::OkStatus();
    if (streams_) return Write(Line({.content = delta.content, .reasoning = delta.reasoning}));
    whole_.content += delta.content;
    whole_.reasoning += delta.reasoning;
    return absl::OkStatus();
  }
  absl::Status End(size_t /*choice*/, const std::string& reason, const RequestSummary& summary) override {
    reason_ = reason;
    summary_ = summary;
    return absl::OkStatus();
  }

  absl::Status Begin() {
    if (!streams_ || response_.begun()) return absl::OkStatus();
    return response_.Begin({{"Content-Type", "application/x-ndjson"}});
  }
  absl::Status Write(const OrderedJson& line) { return response_.Write(DumpWithArguments(line) + "\n"); }

  OrderedJson Line(const OutputDelta& delta) const { return OllamaLine(form_, *model_, delta); }

  const OllamaForm form_;
  const bool streams_;
  OutputDelta whole_;  // of a document
  std::vector<ToolCallDelta> calls_;
  std::string reason_;
  RequestSummary summary_;
};

}  // namespace

std::string OllamaTime(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone()); }

OrderedJson OllamaLine(OllamaForm form, const ServedModel& model, const OutputDelta& delta) {
  OrderedJson words = OrderedJson::object();
  if (form == OllamaForm::kChat) words["role"] = "assistant";
  words[form == OllamaForm::kChat ? "content" : "response"] = delta.content;
  if (!delta.reasoning.empty()) words["thinking"] = delta.reasoning;
  for (const ToolCallDelta& call : delta.tool_calls) {
    words["tool_calls"].push_back(
        {{"id", call.id},
         {"function", {{"index", call.index}, {"name", call.name}, {"arguments", ArgumentsObject(call.arguments)}}}});
  }
  OrderedJson line = {{"model", model.name}, {"created_at", OllamaTime(absl::Now())}};
  if (form == OllamaForm::kChat) {
    line["message"] = std::move(words);
  } else {
    line.update(words);
  }
  line["done"] = false;
  return line;
}

std::unique_ptr<ChatAnswer> NewOllamaAnswer(OllamaForm form, const OllamaRequest& request, ModelBoard::ModelPtr model,
                                            const std::string& id, Response& response) {
  return std::make_unique<OllamaAnswer>(form, request, std::move(model), id, response);
}

}  // namespace moestro::router
