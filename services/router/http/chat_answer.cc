#include "services/router/http/chat_answer.h"

#include <functional>
#include <utility>

#include "common/base/status.h"
#include "services/router/http/logprobs.h"

namespace moestro::router {
namespace {

OrderedJson ToJson(const ToolCallDelta& call, bool in_stream) {
  OrderedJson json = OrderedJson::object();
  if (in_stream) json["index"] = call.index;
  if (!call.name.empty()) {
    json["id"] = call.id;
    json["type"] = "function";
    json["function"] = {{"name", call.name}, {"arguments", call.arguments}};
  } else {
    json["function"] = {{"arguments", call.arguments}};
  }
  return json;
}

// The form before tools, which has one call and no id.
OrderedJson ToFunctionCall(const ToolCallDelta& call) {
  if (call.name.empty()) return {{"arguments", call.arguments}};
  return {{"name", call.name}, {"arguments", call.arguments}};
}

// Frames, as soon as there is something to tell.
class ChatStream final : public ChatAnswer {
 public:
  ChatStream(const ChatRequest& request, ModelBoard::ModelPtr model, const std::string& id,
             std::chrono::seconds keep_alive, Response& response)
      : ChatAnswer(request, std::move(model), id, response), keep_alive_(keep_alive) {}

  absl::Status Waiting() override { return Begin(); }
  absl::Status Started(size_t choice, uint32_t prompt_tokens, const AdmissionNotice& notice) override {
    MOE_RETURN_IF_ERROR(ChatAnswer::Started(choice, prompt_tokens, notice));
    return Begin();
  }
  absl::Status Prefill(size_t choice, const PrefillProgress& progress) override {
    if (!request_.stream.progress) return absl::OkStatus();
    OrderedJson frame = Frame(choice, OrderedJson::object(), nullptr);
    frame["prompt_progress"] = ProgressJson(progress);
    return Write(frame);
  }

  absl::Status Finish() override {
    if (request_.stream.include_usage) {
      OrderedJson last = Envelope("chat.completion.chunk");
      last["choices"] = OrderedJson::array();
      last["usage"] = usage_.ToJson();
      MOE_RETURN_IF_ERROR(Write(last));
    }
    return response_.Write(kSseDone);
  }

 private:
  absl::Status Add(size_t choice, const OutputDelta& delta, const std::vector<Token>& tokens) override {
    const bool logprobs = request_.logprobs && !tokens.empty();
    if (delta.empty() && !logprobs) return absl::OkStatus();
    OrderedJson change = OrderedJson::object();
    if (!delta.reasoning.empty()) change["reasoning_content"] = delta.reasoning;
    if (!delta.content.empty()) change["content"] = delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (request_.as_function_call) {
        MOE_RETURN_IF_ERROR(Write(Frame(choice, {{"function_call", ToFunctionCall(call)}}, nullptr)));
      } else {
        change["tool_calls"].push_back(ToJson(call, /*in_stream=*/true));
      }
    }
    OrderedJson frame = Frame(choice, std::move(change), nullptr);
    if (logprobs) frame["choices"][0]["logprobs"] = ChatLogprobs(tokens, *model_->text);
    return Write(frame);
  }
  absl::Status End(size_t choice, const std::string& reason, const RequestSummary& summary) override {
    OrderedJson frame = Frame(choice, OrderedJson::object(), reason);
    frame["timings"] = Timings(summary);
    return Write(frame);
  }

  // The first byte, as soon as it is certain that the request is not refused.
  absl::Status Begin() {
    if (std::exchange(begun_, true)) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(BeginSse(keep_alive_, request_.stream, response_));
    for (size_t choice = 0; choice < request_.choices.size(); ++choice) {
      MOE_RETURN_IF_ERROR(Write(Frame(choice, {{"role", "assistant"}, {"content", ""}}, nullptr)));
    }
    return absl::OkStatus();
  }

  OrderedJson Frame(size_t choice, OrderedJson delta, OrderedJson finish_reason) const {
    OrderedJson frame = Envelope("chat.completion.chunk");
    frame["choices"] = OrderedJson::array({{{"index", choice},
                                            {"delta", std::move(delta)},
                                            {"logprobs", nullptr},
                                            {"finish_reason", std::move(finish_reason)}}});
    if (request_.stream.include_usage) frame["usage"] = nullptr;
    if (request_.stream.continuous_usage) frame["usage"] = usage_.ToJson();
    return frame;
  }
  absl::Status Write(const OrderedJson& frame) { return response_.Write(SseFrame(Dump(frame))); }

  const std::chrono::seconds keep_alive_;
  bool begun_ = false;
};

// One document at the end.
class ChatDocument final : public ChatAnswer {
 public:
  ChatDocument(const ChatRequest& request, ModelBoard::ModelPtr model, const std::string& id, Response& response)
      : ChatAnswer(request, std::move(model), id, response), messages_(request.choices.size()) {}

  absl::Status Waiting() override { return absl::OkStatus(); }
  absl::Status Prefill(size_t, const PrefillProgress&) override { return absl::OkStatus(); }

  absl::Status Finish() override {
    OrderedJson document = Envelope("chat.completion");
    document["choices"] = OrderedJson::array();
    for (size_t i = 0; i < messages_.size(); ++i) document["choices"].push_back(ChoiceJson(i));
    document["usage"] = usage_.ToJson();
    document["timings"] = Timings(messages_[0].summary);
    return response_.SendJson(200, Dump(document));
  }

 private:
  struct Message {
    OutputDelta whole;
    std::vector<Token> tokens;
    std::string reason;
    RequestSummary summary;
  };

  absl::Status Add(size_t choice, const OutputDelta& delta, const std::vector<Token>& tokens) override {
    Message& to = messages_[choice];
    to.whole.content += delta.content;
    to.whole.reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.index == to.whole.tool_calls.size()) {
        to.whole.tool_calls.push_back(call);
      } else {
        to.whole.tool_calls[call.index].arguments += call.arguments;
      }
    }
    if (request_.logprobs) to.tokens.insert(to.tokens.end(), tokens.begin(), tokens.end());
    return absl::OkStatus();
  }
  absl::Status End(size_t choice, const std::string& reason, const RequestSummary& summary) override {
    messages_[choice].reason = reason;
    messages_[choice].summary = summary;
    return absl::OkStatus();
  }

  OrderedJson ChoiceJson(size_t index) const {
    const Message& from = messages_[index];
    OrderedJson message{{"role", "assistant"}, {"content", from.whole.content}, {"refusal", nullptr}};
    if (!from.whole.reasoning.empty()) message["reasoning_content"] = from.whole.reasoning;
    if (!from.whole.tool_calls.empty()) {
      if (from.whole.content.empty()) message["content"] = nullptr;
      for (const ToolCallDelta& call : from.whole.tool_calls) {
        if (request_.as_function_call) {
          message["function_call"] = ToFunctionCall(call);
          break;
        }
        message["tool_calls"].push_back(ToJson(call, /*in_stream=*/false));
      }
    }
    return {{"index", index},
            {"message", std::move(message)},
            {"logprobs", request_.logprobs ? ChatLogprobs(from.tokens, *model_->text) : OrderedJson(nullptr)},
            {"finish_reason", from.reason}};
  }

  std::vector<Message> messages_;
};

}  // namespace

ChatAnswer::ChatAnswer(const ChatRequest& request, ModelBoard::ModelPtr model, const std::string& id,
                       Response& response)
    : request_(request), model_(std::move(model)), response_(response), id_(id) {
  const uint64_t seed = std::hash<std::string>()(id);
  for (size_t i = 0; i < request.choices.size(); ++i) {
    choices_.push_back({.parser = NewOutputParser(request_, *model_, seed + i), .reasons = request.reasoning_open});
  }
}

absl::Status ChatAnswer::Started(size_t /*choice*/, uint32_t prompt_tokens, const AdmissionNotice& notice) {
  // All choices have the same prompt.
  if (!std::exchange(counted_, true)) usage_.AddPrompt(prompt_tokens, notice.cached_tokens);
  return absl::OkStatus();
}

absl::Status ChatAnswer::Tokens(size_t choice, const std::vector<Token>& tokens, const std::string& text) {
  Choice& to = choices_[choice];
  OutputDelta delta = to.parser->Push(text);
  to.reasons = (to.reasons || !delta.reasoning.empty()) && delta.content.empty() && delta.tool_calls.empty();
  usage_.AddGenerated(tokens.size(), to.reasons ? tokens.size() : 0);
  return AddShown(choice, std::move(delta), tokens);
}

absl::Status ChatAnswer::AddShown(size_t choice, OutputDelta delta, const std::vector<Token>& tokens) {
  if (!request_.shows_reasoning) delta.reasoning.clear();
  return Add(choice, delta, tokens);
}

absl::Status ChatAnswer::Finished(size_t choice, const RequestSummary& summary) {
  Choice& to = choices_[choice];
  MOE_RETURN_IF_ERROR(AddShown(choice, to.parser->Finish(summary.reason), {}));
  const bool calls = to.parser->saw_tool_calls() && summary.reason == FinishReason::kStop;
  const char* call_word = request_.as_function_call ? "function_call" : "tool_calls";
  return End(choice, calls ? call_word : FinishWord(summary.reason), summary);
}

OrderedJson ChatAnswer::Envelope(const char* object) const {
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_->name},
          {"system_fingerprint", SystemFingerprint(*model_)}};
}

std::unique_ptr<ChatAnswer> NewChatStream(const ChatRequest& request, ModelBoard::ModelPtr model, const std::string& id,
                                          std::chrono::seconds keep_alive, Response& response) {
  return std::make_unique<ChatStream>(request, std::move(model), id, keep_alive, response);
}

std::unique_ptr<ChatAnswer> NewChatDocument(const ChatRequest& request, ModelBoard::ModelPtr model,
                                            const std::string& id, Response& response) {
  return std::make_unique<ChatDocument>(request, std::move(model), id, response);
}

}  // namespace moestro::router
