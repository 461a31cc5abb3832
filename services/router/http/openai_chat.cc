#include "services/router/http/openai_chat.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "services/router/http/chat_answer.h"
#include "services/router/http/errors.h"

namespace moestro::router {

namespace {

absl::Status AnswerChatCompletions(const HttpApi& api, HttpRequest& http, Response& response) {
  ClientCall& call = response.call();
  const CancelCheck check = [&] { return call.Check(); };
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Ready());
  const auto read = [&](const ServedModel& served, ConstraintCheck& constraints) {
    return ReadChatRequest(http.body.text, served, constraints, check);
  };
  MOE_ASSIGN_OR_RETURN(const ChatRequest request, api.runner.ReadInTurn<ChatRequest>(read, call.bytes(), check));
  http.body = {};
  const std::string id = "chatcmpl-" + api.runner.NewRequestId();
  const std::unique_ptr<ChatAnswer> answer = request.stream.stream
                                                 ? NewChatStream(request, model, id, api.keep_alive, response)
                                                 : NewChatDocument(request, model, id, response);
  const absl::Status status = RunChoices(api, response, id, request.choices, *answer);
  if (status.ok()) return answer->Finish();
  // Without a first byte the error is the reply's status.
  if (response.begun()) response.Write(absl::StrCat(SseError(status), kSseDone)).IgnoreError();
  return status;
}

}  // namespace

absl::Status HandleChatCompletions(const HttpApi& api, HttpRequest& http, Response& response) {
  return InWordsOf(Api::kChat, AnswerChatCompletions(api, http, response));
}

}  // namespace moestro::router
