#include "services/router/http/anthropic_messages.h"

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random_bits.h"
#include "common/base/status.h"
#include "services/router/http/anthropic_fields.h"
#include "services/router/http/call_arguments.h"
#include "services/router/http/choices.h"
#include "services/router/http/errors.h"
#include "services/router/http/frames.h"

namespace moestro::router {
namespace {

constexpr char kPing[] = "event: ping\ndata: {\"type\": \"ping\"}\n\n";

std::string Event(const OrderedJson& data) {
  return absl::StrCat("event: ", data["type"].get_ref<const std::string&>(), "\ndata: ", Dump(data), "\n\n");
}

// Anthropic counts what the cache had apart.
OrderedJson Usage(uint32_t prompt_tokens, uint32_t cached_tokens, uint64_t generated) {
  return {{"input_tokens", prompt_tokens - cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached_tokens},
          {"output_tokens", generated}};
}

// The answer as blocks, streamed or whole. One block is open at a time: thinking, then text, then calls.
class MessageAnswer final : public Answer {
 public:
  MessageAnswer(const HttpApi& api, const MessagesRequest& request, ModelBoard::ModelPtr model, std::string id,
                Response& response)
      : api_(api),
        streams_(request.chat.stream.stream),
        thinking_(request.thinking),
        model_(std::move(model)),
        id_(std::move(id)),
        response_(response),
        parser_(NewOutputParser(request.chat, *model_, HashName(id_))) {}

  absl::Status Waiting() override { return streams_ ? Begin() : absl::OkStatus(); }

  absl::Status Started(size_t /*choice*/, uint32_t prompt_tokens, const AdmissionNotice& notice) override {
    prompt_tokens_ = prompt_tokens;
    cached_tokens_ = notice.cached_tokens;
    if (!streams_) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(Begin());
    return Write({{"type", "message_start"}, {"message", Message(nullptr, nullptr)}});
  }

  absl::Status Prefill(size_t /*choice*/, const PrefillProgress& /*progress*/) override { return absl::OkStatus(); }

  absl::Status Tokens(size_t /*choice*/, const std::vector<Token>& tokens, const std::string& text) override {
    generated_ += tokens.size();
    return Take(parser_->Push(text));
  }

  absl::Status Finished(size_t /*choice*/, const RequestSummary& summary) override {
    MOE_RETURN_IF_ERROR(Take(parser_->Finish(summary.reason)));
    MOE_RETURN_IF_ERROR(CloseBlock());
    const bool stopped_by_text = !summary.stop_text.empty();
    const char* reason = summary.reason == FinishReason::kLength ? "max_tokens"
                         : stopped_by_text                       ? "stop_sequence"
                         : parser_->saw_tool_calls()             ? "tool_use"
                                                                 : "end_turn";
    const OrderedJson stop_text = stopped_by_text ? OrderedJson(summary.stop_text) : OrderedJson(nullptr);
    if (!streams_) return response_.SendJson(200, DumpWithArguments(Message(reason, stop_text)));
    MOE_RETURN_IF_ERROR(Write({{"type", "message_delta"},
                               {"delta", {{"stop_reason", reason}, {"stop_sequence", stop_text}}},
                               {"usage", Usage(prompt_tokens_, cached_tokens_, generated_)}}));
    return Write({{"type", "message_stop"}});
  }

 private:
  // The first byte, as soon as it is certain that the request is not refused.
  absl::Status Begin() {
    if (response_.begun()) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(response_.Begin(SseHeaders(), api_.keep_alive.count() > 0 ? kPing : "", api_.keep_alive));
    return response_.Write(kPing);
  }

  absl::Status Write(const OrderedJson& event) { return response_.Write(Event(event)); }

  OrderedJson Message(OrderedJson reason, OrderedJson stop_text) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_->name},
            {"content", blocks_},
            {"stop_reason", std::move(reason)},
            {"stop_sequence", std::move(stop_text)},
            {"usage", Usage(prompt_tokens_, cached_tokens_, generated_)}};
  }

  absl::Status Take(const OutputDelta& delta) {
    std::span<const ToolCallDelta> calls = delta.tool_calls;
    // The rest of a call comes before a text that follows it.
    if (!calls.empty() && calls[0].id.empty()) {
      MOE_RETURN_IF_ERROR(AddArguments(calls[0].arguments));
      calls = calls.subspan(1);
    }
    // Clients that did not ask for thoughts take the first block for the answer.
    if (thinking_) MOE_RETURN_IF_ERROR(Add("thinking", "thinking", "thinking_delta", delta.reasoning));
    MOE_RETURN_IF_ERROR(Add("text", "text", "text_delta", delta.content));
    for (const ToolCallDelta& call : calls) {
      MOE_RETURN_IF_ERROR(
          OpenBlock({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", OrderedJson::object()}}));
      MOE_RETURN_IF_ERROR(AddArguments(call.arguments));
    }
    return absl::OkStatus();
  }

  absl::Status AddArguments(const std::string& piece) {
    arguments_ += piece;
    return Delta("input_json_delta", "partial_json", piece);
  }

  // Text of a block that opens with the first piece.
  absl::Status Add(const char* type, const char* field, const char* delta_type, const std::string& text) {
    if (text.empty()) return absl::OkStatus();
    if (!open_ || blocks_.back()["type"] != type) {
      OrderedJson block = {{"type", type}, {field, ""}};
      if (std::string_view(type) == "thinking") block["signature"] = "";
      MOE_RETURN_IF_ERROR(OpenBlock(std::move(block)));
    }
    // A stream keeps nothing of what it has sent.
    if (!streams_) blocks_.back()[field].get_ref<std::string&>() += text;
    return Delta(delta_type, field, text);
  }

  absl::Status Delta(const char* type, const char* field, const std::string& text) {
    if (!streams_ || text.empty()) return absl::OkStatus();
    return Write({{"type", "content_block_delta"}, {"index", index_}, {"delta", {{"type", type}, {field, text}}}});
  }

  absl::Status OpenBlock(OrderedJson block) {
    MOE_RETURN_IF_ERROR(CloseBlock());
    if (streams_) {
      MOE_RETURN_IF_ERROR(Write({{"type", "content_block_start"}, {"index", index_}, {"content_block", block}}));
      blocks_.clear();
    }
    blocks_.push_back(std::move(block));
    open_ = true;
    return absl::OkStatus();
  }

  absl::Status CloseBlock() {
    if (!std::exchange(open_, false)) return absl::OkStatus();
    if (!streams_ && blocks_.back()["type"] == "tool_use") blocks_.back()["input"] = ArgumentsObject(arguments_);
    arguments_.clear();
    const uint32_t index = index_++;
    return streams_ ? Write({{"type", "content_block_stop"}, {"index", index}}) : absl::OkStatus();
  }

  const HttpApi& api_;
  const bool streams_;
  const bool thinking_;
  const ModelBoard::ModelPtr model_;
  const std::string id_;
  Response& response_;
  const std::unique_ptr<OutputParser> parser_;
  uint32_t prompt_tokens_ = 0;
  uint32_t cached_tokens_ = 0;
  uint64_t generated_ = 0;
  OrderedJson blocks_ = OrderedJson::array();  // of a stream the last one
  bool open_ = false;                          // the last block
  uint32_t index_ = 0;                         // of the block that is open, or comes next
  std::string arguments_;                      // of the call that is open
};

absl::Status AnswerMessages(const HttpApi& api, HttpRequest& http, Response& response) {
  ClientCall& call = response.call();
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Ready());
  const CancelCheck check = [&] { return call.Check(); };
  const auto read = [&](const ServedModel& served, ConstraintCheck& constraints) {
    return ReadMessagesRequest(http.body.text, served, constraints, check);
  };
  MOE_ASSIGN_OR_RETURN(const MessagesRequest request,
                       api.runner.ReadInTurn<MessagesRequest>(read, call.bytes(), check));
  http.body = {};
  const std::string id = "msg_" + api.runner.NewRequestId();
  MessageAnswer answer(api, request, model, id, response);
  return RunChoices(api, response, id, request.chat.choices, answer);
}

absl::Status AnswerCountTokens(const HttpApi& api, HttpRequest& http, Response& response) {
  MOE_ASSIGN_OR_RETURN(const size_t tokens, CountPrompt(api, http, response.call(), ReadAnthropicChat));
  return response.SendJson(200, Dump({{"input_tokens", tokens}}));
}

}  // namespace

absl::Status HandleMessages(const HttpApi& api, HttpRequest& request, Response& response) {
  const absl::Status status = InWordsOf(Api::kMessages, AnswerMessages(api, request, response));
  if (!status.ok() && response.begun()) {
    const HttpError error = ErrorAt(request.head.path, status, response.request_id());
    response.Write(absl::StrCat("event: error\ndata: ", error.body, "\n\n")).IgnoreError();
  }
  return status;
}

absl::Status HandleCountTokens(const HttpApi& api, HttpRequest& request, Response& response) {
  return InWordsOf(Api::kMessages, AnswerCountTokens(api, request, response));
}

}  // namespace moestro::router
