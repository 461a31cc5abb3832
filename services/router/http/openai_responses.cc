#include "services/router/http/openai_responses.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/text/json/quoted.h"
#include "services/router/http/choices.h"
#include "services/router/http/errors.h"
#include "services/router/http/frames.h"
#include "services/router/http/responses_request.h"

namespace moestro::router {
namespace {

// What a custom tool is called with: the one argument of its function. A model that writes no such JSON, or is cut off,
// is taken at its word.
std::string CustomInput(const std::string& arguments) {
  const OrderedJson parsed = OrderedJson::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || !parsed.contains("input") || !parsed["input"].is_string()) return arguments;
  return parsed["input"].get<std::string>();
}

// The answer as a list of items, of which the last may still grow. Each change is an event.
class ResponsesAnswer final : public Answer {
 public:
  ResponsesAnswer(const HttpApi& api, const ChatRequest& request, ModelBoard::ModelPtr model, Response& response)
      : api_(api),
        request_(request),
        model_(std::move(model)),
        response_(response),
        id_("resp_" + api.runner.NewRequestId()),
        parser_(NewOutputParser(request, *model_, std::hash<std::string>()(id_))),
        reasons_(request.reasoning_open) {}

  const std::string& id() const { return id_; }

  absl::Status Waiting() override { return Begin(); }
  absl::Status Started(size_t, uint32_t prompt_tokens, const AdmissionNotice& notice) override {
    usage_.AddPrompt(prompt_tokens, notice.cached_tokens);
    return Begin();
  }
  absl::Status Prefill(size_t, const PrefillProgress&) override { return absl::OkStatus(); }
  absl::Status Tokens(size_t, const std::vector<Token>& tokens, const std::string& text) override {
    const OutputDelta delta = parser_->Push(text);
    reasons_ = (reasons_ || !delta.reasoning.empty()) && delta.content.empty() && delta.tool_calls.empty();
    usage_.AddGenerated(tokens.size(), reasons_ ? tokens.size() : 0);
    return Add(delta);
  }
  absl::Status Finished(size_t, const RequestSummary& summary) override {
    MOE_RETURN_IF_ERROR(Add(parser_->Finish(summary.reason)));
    MOE_RETURN_IF_ERROR(Close(summary.reason == FinishReason::kStop ? "completed" : "incomplete"));
    summary_ = summary;
    return absl::OkStatus();
  }

  absl::Status Finish() {
    const bool whole = summary_.reason == FinishReason::kStop;
    OrderedJson document = Document(whole ? "completed" : "incomplete");
    document["output"] = items_;
    document["usage"] = usage_.ToResponsesJson();
    if (!whole) document["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (!request_.stream.stream) return response_.SendJson(200, Dump(document));
    return Emit(whole ? "response.completed" : "response.incomplete", {{"response", std::move(document)}});
  }

  absl::Status Fail(const absl::Status& status) {
    const bool is_ours = HttpStatusOf(status) >= 500;
    const char* code = ErrorCode(status);
    OrderedJson document = Document("failed");
    document["error"] = {{"code", is_ours           ? "server_error"
                                  : code != nullptr ? code
                                                    : "invalid_prompt"},
                         {"message", ErrorMessage(status)}};
    return Emit("response.failed", {{"response", std::move(document)}});
  }

 private:
  OrderedJson Document(const char* state) const {
    OrderedJson document{{"id", id_},
                         {"object", "response"},
                         {"created_at", created_},
                         {"status", state},
                         {"error", nullptr},
                         {"incomplete_details", nullptr},
                         {"instructions", nullptr},
                         {"max_output_tokens", nullptr},
                         {"metadata", OrderedJson::object()},
                         {"model", model_->name},
                         {"output", OrderedJson::array()},
                         {"parallel_tool_calls", true},
                         {"store", false},
                         {"temperature", request_.choices[0].temperature.value_or(model_->default_temperature)},
                         {"tool_choice", "auto"},
                         {"tools", OrderedJson::array()},
                         {"top_p", request_.choices[0].top_p.value_or(model_->default_top_p)},
                         {"usage", nullptr}};
    document.update(request_.echo);
    return document;
  }

  absl::Status Emit(const std::string& type, OrderedJson fields) {
    if (!request_.stream.stream) return absl::OkStatus();
    OrderedJson event{{"type", type}, {"sequence_number", sequence_++}};
    event.update(fields);
    return response_.Write(absl::StrCat("event: ", type, "\n", SseFrame(Dump(event))));
  }
  absl::Status Begin() {
    if (!request_.stream.stream || std::exchange(begun_, true)) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(BeginSse(api_.keep_alive, request_.stream, response_));
    MOE_RETURN_IF_ERROR(Emit("response.created", {{"response", Document("in_progress")}}));
    return Emit("response.in_progress", {{"response", Document("in_progress")}});
  }

  absl::Status Add(const OutputDelta& delta) {
    if (!delta.reasoning.empty()) MOE_RETURN_IF_ERROR(AddText("reasoning", "reasoning_text", delta.reasoning));
    if (!delta.content.empty()) MOE_RETURN_IF_ERROR(AddText("message", "output_text", delta.content));
    for (const ToolCallDelta& call : delta.tool_calls) MOE_RETURN_IF_ERROR(AddCall(call));
    return absl::OkStatus();
  }

  // The open item, and its part for texts.
  OrderedJson& item() { return items_.back(); }
  OrderedJson Place() { return {{"item_id", item()["id"]}, {"output_index", items_.size() - 1}}; }
  OrderedJson PartPlace() {
    OrderedJson place = Place();
    place["content_index"] = 0;
    return place;
  }
  static OrderedJson With(OrderedJson place, const char* key, OrderedJson value) {
    place[key] = std::move(value);
    return place;
  }

  // Clients read them in the events of texts, which have none here.
  static OrderedJson WithLogprobs(OrderedJson event, std::string_view part) {
    if (part == "output_text") event["logprobs"] = OrderedJson::array();
    return event;
  }
  static const char* IdPrefix(std::string_view type) {
    return type == "function_call" ? "fc_" : type == "custom_tool_call" ? "ctc_" : type == "reasoning" ? "rs_" : "msg_";
  }

  absl::Status Open(const char* type, OrderedJson fields) {
    MOE_RETURN_IF_ERROR(Close());
    OrderedJson opened{{"type", type},
                       {"id", absl::StrCat(IdPrefix(type), id_.substr(5), "-", items_.size())},
                       {"status", "in_progress"}};
    opened.update(fields);
    items_.push_back(std::move(opened));
    open_ = type;
    return Emit("response.output_item.added", {{"output_index", items_.size() - 1}, {"item", item()}});
  }

  absl::Status AddText(const char* type, const char* part, const std::string& text) {
    if (open_ != type) {
      OrderedJson fields = type == std::string("message") ? OrderedJson{{"role", "assistant"}}
                                                          : OrderedJson{{"summary", OrderedJson::array()}};
      fields["content"] = OrderedJson::array();
      MOE_RETURN_IF_ERROR(Open(type, std::move(fields)));
      OrderedJson empty{{"type", part}, {"text", ""}};
      if (type == std::string("message")) empty["annotations"] = OrderedJson::array();
      item()["content"].push_back(empty);
      MOE_RETURN_IF_ERROR(Emit("response.content_part.added", With(PartPlace(), "part", std::move(empty))));
    }
    text_ += text;
    return Emit(absl::StrCat("response.", part, ".delta"), WithLogprobs(With(PartPlace(), "delta", text), part));
  }

  absl::Status AddCall(const ToolCallDelta& call) {
    if (!call.name.empty()) {
      OrderedJson fields{{"call_id", call.id}, {"name", call.name}};
      const auto origin = request_.origins.find(call.name);
      const bool is_custom = origin != request_.origins.end() && origin->second.is_custom;
      if (origin != request_.origins.end()) {
        fields["name"] = origin->second.name;
        if (!origin->second.space.empty()) fields["namespace"] = origin->second.space;
      }
      fields[is_custom ? "input" : "arguments"] = "";
      MOE_RETURN_IF_ERROR(Open(is_custom ? "custom_tool_call" : "function_call", std::move(fields)));
    }
    text_ += call.arguments;
    // The text of a custom tool is in JSON until that is whole.
    if (call.arguments.empty() || open_ == "custom_tool_call") return absl::OkStatus();
    return Emit("response.function_call_arguments.delta", With(Place(), "delta", call.arguments));
  }

  // Ends the open item, which is whole unless the answer was cut.
  absl::Status Close(const char* state = "completed") {
    if (open_.empty()) return absl::OkStatus();
    const std::string type = std::exchange(open_, {});
    const std::string text = std::exchange(text_, {});
    item()["status"] = state;
    MOE_RETURN_IF_ERROR(type == "function_call"      ? CloseFunctionCall(text)
                        : type == "custom_tool_call" ? CloseCustomCall(CustomInput(text))
                                                     : CloseText(text));
    return Emit("response.output_item.done", {{"output_index", items_.size() - 1}, {"item", item()}});
  }

  absl::Status CloseFunctionCall(const std::string& arguments) {
    item()["arguments"] = arguments;
    OrderedJson done = With(Place(), "arguments", arguments);
    return Emit("response.function_call_arguments.done", With(std::move(done), "name", item()["name"]));
  }

  absl::Status CloseCustomCall(const std::string& input) {
    item()["input"] = input;
    if (!input.empty()) {
      MOE_RETURN_IF_ERROR(Emit("response.custom_tool_call_input.delta", With(Place(), "delta", input)));
    }
    return Emit("response.custom_tool_call_input.done", With(Place(), "input", input));
  }

  absl::Status CloseText(const std::string& text) {
    OrderedJson& part = item()["content"][0];
    part["text"] = text;
    const std::string type = part["type"];
    MOE_RETURN_IF_ERROR(
        Emit(absl::StrCat("response.", type, ".done"), WithLogprobs(With(PartPlace(), "text", text), type)));
    return Emit("response.content_part.done", With(PartPlace(), "part", part));
  }

  const HttpApi& api_;
  const ChatRequest& request_;
  const ModelBoard::ModelPtr model_;
  Response& response_;
  const std::string id_;
  const int64_t created_ = UnixSeconds();
  const std::unique_ptr<OutputParser> parser_;
  bool reasons_;
  bool begun_ = false;
  UsageSum usage_;
  RequestSummary summary_;
  uint64_t sequence_ = 0;
  OrderedJson items_ = OrderedJson::array();
  std::string open_;  // the type of the last item while it grows
  std::string text_;  // what it has so far
};

}  // namespace

namespace {

absl::Status AnswerResponses(const HttpApi& api, HttpRequest& http, Response& response) {
  ClientCall& call = response.call();
  const CancelCheck check = [&] { return call.Check(); };
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Ready());
  const auto read = [&](const ServedModel& served, ConstraintCheck& constraints) {
    return ReadResponsesRequest(http.body.text, served, constraints, check);
  };
  MOE_ASSIGN_OR_RETURN(const ChatRequest request, api.runner.ReadInTurn<ChatRequest>(read, call.bytes(), check));
  http.body = {};
  ResponsesAnswer answer(api, request, model, response);
  const absl::Status status = RunChoices(api, response, answer.id(), request.choices, answer);
  if (status.ok()) return answer.Finish();
  if (response.begun()) answer.Fail(status).IgnoreError();
  return status;
}

absl::Status AnswerInputTokens(const HttpApi& api, HttpRequest& http, Response& response) {
  const auto read = [](const nlohmann::json& request, std::string_view body) {
    ToolOrigins origins;
    return ReadResponsesChat(request, body, origins);
  };
  MOE_ASSIGN_OR_RETURN(const size_t tokens, CountPrompt(api, http, response.call(), read));
  return response.SendJson(200, Dump({{"object", "response.input_tokens"}, {"input_tokens", tokens}}));
}

}  // namespace

absl::Status HandleResponses(const HttpApi& api, HttpRequest& http, Response& response) {
  return InWordsOf(Api::kResponses, AnswerResponses(api, http, response));
}

absl::Status HandleInputTokens(const HttpApi& api, HttpRequest& http, Response& response) {
  return InWordsOf(Api::kResponses, AnswerInputTokens(api, http, response));
}

absl::Status HandleCancel(const HttpApi& api, const HttpRequest& request, Response& response) {
  std::string_view id = request.head.path;
  id.remove_prefix(std::string_view("/v1/responses/").size());
  constexpr std::string_view kCancel = "/cancel";
  if (!id.ends_with(kCancel)) return absl::NotFoundError("there is POST /v1/responses/{id}/cancel only");
  id.remove_suffix(kCancel.size());
  if (!AbortChoices(api, *response.call().tenant(), std::string(id))) {
    return absl::NotFoundError(absl::StrCat("no request with the id ", text::Quoted(id), " is running"));
  }
  return response.SendJson(200, Dump({{"id", id}, {"object", "response"}, {"status", "cancelled"}}));
}

}  // namespace moestro::router
