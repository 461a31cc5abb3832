#include "services/router/http/batch_executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "services/router/http/anthropic_messages.h"
#include "services/router/http/errors.h"
#include "services/router/http/message_batch.h"
#include "services/router/http/openai_chat.h"
#include "services/router/http/openai_completions.h"
#include "services/router/http/openai_responses.h"

namespace moestro::router {
namespace {

batch::Reply ErrorReply(const std::string& path, const absl::Status& status) {
  const HttpError error = ErrorAt(path, status);
  return {
      .status = error.status, .body = error.body, .retry_after = std::chrono::seconds(error.retry_after.value_or(0))};
}

}  // namespace

BatchExecutor::BatchExecutor(const HttpApi& api, SlowClients& clients, std::string tenant)
    : api_(api), clients_(clients), tenant_(std::move(tenant)) {}

absl::Status BatchExecutor::Handle(const batch::Request& request, Response& response) {
  const std::shared_ptr<Tenant> tenant = api_.access.Named(tenant_);
  if (tenant == nullptr) {
    return absl::UnauthenticatedError(absl::StrCat("the key '", tenant_, "', whose batch this is, is valid no more"));
  }
  MOE_RETURN_IF_ERROR(tenant->TakeRequest());
  HttpRequest http{.head = {.method = "POST", .path = request.url}, .tenant = tenant, .body = {}};
  http.body.text = request.body;
  response.call().SetTenant(tenant);
  response.call().SetBytes(request.body.size());
  response.call().times().SetReceived(std::chrono::steady_clock::now());
  if (request.url == "/v1/chat/completions") return HandleChatCompletions(api_, http, response);
  if (request.url == "/v1/completions") return HandleCompletions(api_, http, response);
  if (request.url == kMessagesUrl) return HandleMessages(api_, http, response);
  return HandleResponses(api_, http, response);
}

batch::Reply BatchExecutor::Execute(const batch::Request& request) {
  Response response(
      clients_, [] {}, [] {});
  {
    MutexLock lock(mutex_);
    if (cancelled_) return {.failure = "cancelled"};
    running_.insert(&response);
  }
  const absl::Status status = CatchExceptions([&] { return Handle(request, response); });
  {
    MutexLock lock(mutex_);
    running_.erase(&response);
  }
  Response::Ready answer = response.Take();
  response.EndWrite(answer.bytes);
  if (!answer.head) return ErrorReply(request.url, status.ok() ? absl::InternalError("no answer") : status);
  batch::Reply reply{.status = answer.head->status};
  for (const std::string& piece : answer.pieces) reply.body += piece;
  return reply;
}

void BatchExecutor::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  for (Response* response : running_) response->Close();
}

}  // namespace moestro::router
