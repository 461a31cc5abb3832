#include "services/router/http/openai_chat.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/text/json/json.h"
#include "services/router/http/chat_fields.h"
#include "services/router/http/choices.h"
#include "services/router/http/frames.h"
#include "services/router/http/logprobs.h"
#include "services/router/http/request_fields.h"

namespace moestro::router {
namespace {

struct ChatRequest {
  std::string model;
  std::vector<GenerateInput> choices;
  StreamFields stream;
  bool logprobs = false;
};

absl::StatusOr<ChatRequest> ReadRequest(std::string_view body, const ServedModel& model) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseRequest(body, model));
  absl::Status status;
  text::JsonFields fields(parsed, "", &status);
  ChatRequest request{.model = fields.StringOr("model", ""), .choices = {}, .stream = ReadStreamFields(fields)};
  request.logprobs = fields.BoolOr("logprobs", false);
  GenerateInput input = ReadGenerateFields(fields, body);
  input.top_logprobs = static_cast<uint32_t>(fields.IntOr("top_logprobs", 0, 0, kMostAlternatives));
  if (input.top_logprobs > 0 && !request.logprobs) fields.Fail("top_logprobs", "needs logprobs: true");
  const int64_t n = fields.IntOr("n", 1, 1, kMostChoices);
  MOE_RETURN_IF_ERROR(status);
  MOE_RETURN_IF_ERROR(CheckModelName(request.model, model));
  MOE_ASSIGN_OR_RETURN(input.prompt, ReadChat(parsed, body));
  request.choices = Repeat(std::move(input), static_cast<size_t>(n));
  return request;
}

// What frames and whole answers begin with.
OrderedJson Envelope(const char* object, const std::string& id, int64_t created, const ServedModel& model) {
  return {{"id", id},
          {"object", object},
          {"created", created},
          {"model", model.name},
          {"system_fingerprint", SystemFingerprint(model)}};
}

class ChatAnswer : public Answer {
 public:
  ChatAnswer(const ChatRequest& request, ModelBoard::ModelPtr model, std::string id, Response& response)
      : request_(request), model_(std::move(model)), id_(std::move(id)), response_(response) {}

  absl::Status Started(size_t choice, uint32_t prompt_tokens, const AdmissionNotice& notice) override {
    // All choices have the same prompt.
    if (!std::exchange(counted_, true)) usage_.AddPrompt(prompt_tokens, notice.cached_tokens);
    return OnStarted(choice);
  }

 protected:
  virtual absl::Status OnStarted(size_t /*choice*/) { return absl::OkStatus(); }

  const ChatRequest& request_;
  const ModelBoard::ModelPtr model_;
  const std::string id_;
  const int64_t created_ = UnixSeconds();
  Response& response_;
  UsageSum usage_;

 private:
  bool counted_ = false;
};

// Frames, as soon as there is something to tell.
class ChatStream final : public ChatAnswer {
 public:
  ChatStream(const HttpApi& api, const ChatRequest& request, ModelBoard::ModelPtr model, std::string id,
             Response& response)
      : ChatAnswer(request, std::move(model), std::move(id), response), api_(api) {}

  absl::Status Waiting() override { return Begin(); }

  absl::Status Prefill(size_t choice, const PrefillProgress& progress) override {
    if (!request_.stream.progress) return absl::OkStatus();
    OrderedJson frame = Frame(choice, OrderedJson::object(), nullptr);
    frame["prompt_progress"] = {{"total", progress.total_tokens}, {"processed", progress.done_tokens}};
    return Write(frame);
  }

  absl::Status Tokens(size_t choice, const std::vector<Token>& tokens, const std::string& text) override {
    usage_.AddGenerated(tokens.size());
    if (text.empty() && !request_.logprobs) return absl::OkStatus();
    OrderedJson frame = Frame(choice, {{"content", text}}, nullptr);
    if (request_.logprobs) frame["choices"][0]["logprobs"] = ChatLogprobs(tokens, *model_->text);
    return Write(frame);
  }

  absl::Status Finished(size_t choice, const RequestSummary& summary) override {
    OrderedJson frame = Frame(choice, OrderedJson::object(), FinishWord(summary.reason));
    frame["timings"] = Timings(summary);
    return Write(frame);
  }

  absl::Status End() {
    if (request_.stream.include_usage) {
      OrderedJson last = Envelope("chat.completion.chunk", id_, created_, *model_);
      last["choices"] = OrderedJson::array();
      last["usage"] = usage_.ToJson();
      MOE_RETURN_IF_ERROR(response_.Write(SseFrame(Dump(last))));
    }
    return response_.Write(kSseDone);
  }

 private:
  absl::Status OnStarted(size_t /*choice*/) override { return Begin(); }

  // The first byte, as soon as it is certain that the request is not refused.
  absl::Status Begin() {
    if (std::exchange(begun_, true)) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(BeginSse(api_, request_.stream, response_));
    for (size_t choice = 0; choice < request_.choices.size(); ++choice) {
      MOE_RETURN_IF_ERROR(Write(Frame(choice, {{"role", "assistant"}, {"content", ""}}, nullptr)));
    }
    return absl::OkStatus();
  }

  OrderedJson Frame(size_t choice, OrderedJson delta, OrderedJson finish_reason) const {
    OrderedJson frame = Envelope("chat.completion.chunk", id_, created_, *model_);
    frame["choices"] = OrderedJson::array({{{"index", choice},
                                            {"delta", std::move(delta)},
                                            {"logprobs", nullptr},
                                            {"finish_reason", std::move(finish_reason)}}});
    if (request_.stream.include_usage) frame["usage"] = nullptr;
    if (request_.stream.continuous_usage) frame["usage"] = usage_.ToJson();
    return frame;
  }
  absl::Status Write(const OrderedJson& frame) { return response_.Write(SseFrame(Dump(frame))); }

  const HttpApi& api_;
  bool begun_ = false;
};

// One document at the end.
class ChatDocument final : public ChatAnswer {
 public:
  ChatDocument(const ChatRequest& request, ModelBoard::ModelPtr model, std::string id, Response& response)
      : ChatAnswer(request, std::move(model), std::move(id), response), choices_(request.choices.size()) {}

  absl::Status Waiting() override { return absl::OkStatus(); }
  absl::Status Prefill(size_t, const PrefillProgress&) override { return absl::OkStatus(); }

  absl::Status Tokens(size_t choice, const std::vector<Token>& tokens, const std::string& text) override {
    usage_.AddGenerated(tokens.size());
    Choice& to = choices_[choice];
    to.content += text;
    if (request_.logprobs) to.tokens.insert(to.tokens.end(), tokens.begin(), tokens.end());
    return absl::OkStatus();
  }
  absl::Status Finished(size_t choice, const RequestSummary& summary) override {
    choices_[choice].summary = summary;
    return absl::OkStatus();
  }

  absl::Status End() {
    OrderedJson document = Envelope("chat.completion", id_, created_, *model_);
    document["choices"] = OrderedJson::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Choice& choice = choices_[i];
      document["choices"].push_back(
          {{"index", i},
           {"message", {{"role", "assistant"}, {"content", choice.content}, {"refusal", nullptr}}},
           {"logprobs", request_.logprobs ? ChatLogprobs(choice.tokens, *model_->text) : OrderedJson(nullptr)},
           {"finish_reason", FinishWord(choice.summary.reason)}});
    }
    document["usage"] = usage_.ToJson();
    document["timings"] = Timings(choices_[0].summary);
    return response_.SendJson(200, Dump(document));
  }

 private:
  struct Choice {
    std::string content;
    std::vector<Token> tokens;
    RequestSummary summary;
  };
  std::vector<Choice> choices_;
};

}  // namespace

absl::Status HandleChatCompletions(const HttpApi& api, HttpRequest& http, Response& response) {
  ClientCall& call = response.call();
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Ready());
  MOE_ASSIGN_OR_RETURN(const ChatRequest request, (api.runner.ReadInTurn<ChatRequest>(
                                                      [&](const ServedModel& served) {
                                                        const RequestBody body = std::move(http.body);
                                                        return ReadRequest(body.text, served);
                                                      },
                                                      [&] { return call.Check(); })));
  const std::string id = absl::StrCat("chatcmpl-", api.runner.NewRequestId());
  if (!request.stream.stream) {
    ChatDocument document(request, model, id, response);
    MOE_RETURN_IF_ERROR(RunChoices(api, call, id, request.choices, document));
    return document.End();
  }
  ChatStream stream(api, request, model, id, response);
  const absl::Status status = RunChoices(api, call, id, request.choices, stream);
  if (status.ok()) return stream.End();
  // Without a first byte the error is the reply's status.
  if (response.begun()) response.Write(absl::StrCat(SseError(status), kSseDone)).IgnoreError();
  return status;
}

}  // namespace moestro::router
