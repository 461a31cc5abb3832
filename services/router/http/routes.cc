#include "services/router/http/routes.h"

#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/router/http/anthropic_batches.h"
#include "services/router/http/anthropic_messages.h"
#include "services/router/http/llama_endpoints.h"
#include "services/router/http/models.h"
#include "services/router/http/ollama.h"
#include "services/router/http/openai_batches.h"
#include "services/router/http/openai_chat.h"
#include "services/router/http/openai_completions.h"
#include "services/router/http/openai_files.h"
#include "services/router/http/openai_responses.h"
#include "services/router/http/page.h"

namespace moestro::router {
namespace {

using Where = Endpoint::Where;
constexpr Where kEventLoop = Where::kEventLoop;

// Adds endpoints, whose handlers take what they need of (api, request, response), in this order.
class Routes {
 public:
  explicit Routes(const HttpApi& api) : api_(api) {}

  template <typename Handle>
  void Add(const char* method, const char* path, const Endpoint::Admit& admit, Handle handle,
           Where where = Where::kWorker, std::optional<uint64_t> body_bytes = std::nullopt) {
    endpoints_.Add({.method = method,
                    .path = path,
                    .handle = [&api = api_, handle](HttpRequest& from, Response& to) -> absl::Status {
                      if constexpr (std::is_invocable_v<Handle, const HttpApi&, HttpRequest&, Response&>) {
                        return handle(api, from, to);
                      } else if constexpr (std::is_invocable_v<Handle, const HttpApi&, Response&>) {
                        return handle(api, to);
                      } else if constexpr (std::is_invocable_v<Handle, HttpRequest&, Response&>) {
                        return handle(from, to);
                      } else {
                        return handle(to);
                      }
                    },
                    .where = where,
                    .admit = admit,
                    .body_bytes = body_bytes});
  }
  // Of an endpoint that is not here.
  void Refuse(const char* method, const char* path, const Endpoint::Admit& admit, const absl::Status& status) {
    Add(method, path, admit, [status](Response&) { return status; });
  }

  Endpoint::Admit May(access::Endpoint endpoint) const {
    return [&api = api_, endpoint](const Credentials& credentials) { return api.access.Admit(credentials, endpoint); };
  }
  Endpoint::Admit AnyKey() const {
    return [&api = api_](const Credentials& credentials) { return api.access.Identify(credentials); };
  }

  Endpoints Take() { return std::move(endpoints_); }

 private:
  const HttpApi& api_;
  Endpoints endpoints_;
};

// Files and batches, which must answer with what to do where there are none.
void AddBatchEndpoints(const HttpApi& api, const Endpoint::Admit& generate, const Endpoint::Admit& any_key,
                       Routes& routes) {
  const auto upload = api.batches == nullptr ? std::nullopt : std::optional(kMaxUploadBytes);
  routes.Add("POST", "/v1/files", generate, HandleUploadFile, Where::kWorker, upload);
  routes.Add("GET", "/v1/files", any_key, HandleListFiles);
  routes.Add("GET", "/v1/files/*", any_key, HandleFile);
  routes.Add("DELETE", "/v1/files/*", any_key, HandleDeleteFile);
  routes.Add("POST", "/v1/batches", generate, HandleCreateBatch);
  routes.Add("GET", "/v1/batches", any_key, HandleListBatches);
  routes.Add("GET", "/v1/batches/*", any_key, HandleBatch);
  routes.Add("POST", "/v1/batches/*", any_key, HandleCancelBatch);
  routes.Add("POST", "/v1/messages/batches", generate, HandleCreateMessageBatch, Where::kWorker, upload);
  routes.Add("GET", "/v1/messages/batches", any_key, HandleListMessageBatches);
  routes.Add("GET", "/v1/messages/batches/*", any_key, HandleMessageBatch);
  routes.Add("POST", "/v1/messages/batches/*", any_key, HandleCancelMessageBatch);
  routes.Add("DELETE", "/v1/messages/batches/*", any_key, HandleDeleteMessageBatch);
}

void AddOllamaEndpoints(const Endpoint::Admit& generate, const Endpoint::Admit& any_key, Routes& routes) {
  routes.Add("POST", "/api/chat", generate, HandleOllamaChat);
  routes.Add("POST", "/api/generate", generate, HandleOllamaGenerate);
  routes.Add("POST", "/api/show", any_key, HandleOllamaShow);
  routes.Add("GET", "/api/tags", any_key, HandleOllamaTags, kEventLoop);
  routes.Add("GET", "/api/ps", any_key, HandleOllamaPs, kEventLoop);
  routes.Add("GET", "/api/version", Endpoint::Admit(), HandleOllamaVersion, kEventLoop);
  const std::pair<const char*, const char*> others[] = {
      {"POST", "/api/pull"},     {"POST", "/api/push"},  {"POST", "/api/create"},    {"POST", "/api/copy"},
      {"DELETE", "/api/delete"}, {"POST", "/api/embed"}, {"POST", "/api/embeddings"}};
  for (const auto& [method, path] : others) {
    routes.Refuse(method, path, any_key,
                  absl::UnimplementedError(absl::StrCat(
                      path,
                      " is not supported, because this server has one model, which generates text; start it with "
                      "another --model")));
  }
}

}  // namespace

Endpoints MakeEndpoints(const HttpApi& api) {
  Routes routes(api);
  const Endpoint::Admit everybody;
  const Endpoint::Admit any_key = routes.AnyKey();
  const Endpoint::Admit generate = routes.May(access::Endpoint::kGenerate);
  const Endpoint::Admit tokenize = routes.May(access::Endpoint::kTokenize);
  routes.Add("GET", "/health", everybody, HandleHealth, kEventLoop);
  routes.Add("GET", "/version", everybody, HandleVersion, kEventLoop);
  routes.Add("GET", "/v1/models", any_key, HandleModels, kEventLoop);
  routes.Add("GET", "/v1/models/*", any_key, HandleModel, kEventLoop);
  routes.Add("POST", "/v1/chat/completions", generate, HandleChatCompletions);
  routes.Add("POST", "/v1/completions", generate, HandleCompletions);
  routes.Add("POST", "/v1/responses", generate, HandleResponses);
  routes.Add("POST", "/v1/responses/input_tokens", tokenize, HandleInputTokens);
  routes.Add("POST", "/v1/responses/*", any_key, HandleCancel, kEventLoop);
  AddBatchEndpoints(api, generate, any_key, routes);
  routes.Add("POST", "/v1/messages", generate, HandleMessages);
  routes.Add("POST", "/v1/messages/count_tokens", tokenize, HandleCountTokens);
  AddOllamaEndpoints(generate, any_key, routes);
  routes.Refuse("POST", "/v1/embeddings", any_key,
                absl::UnimplementedError("embeddings are not supported: this server generates text"));
  routes.Add("POST", "/tokenize", tokenize, HandleTokenize);
  routes.Add("POST", "/detokenize", tokenize, HandleDetokenize);
  routes.Add("POST", "/apply-template", tokenize, HandleApplyTemplate);
  routes.Add("GET", "/tokenizer_info", any_key, HandleTokenizerInfo, kEventLoop);
  routes.Add("GET", "/props", any_key, HandleProps, kEventLoop);
  if (!api.is_public) {
    routes.Add("GET", "/slots", any_key, HandleSlots, kEventLoop);
    routes.Add("GET", "/metrics", routes.May(access::Endpoint::kAdmin), HandleMetrics);
  }
  // The page asks for a key itself, and sends it with its calls.
  for (const char* path : {"/", "/page/*"}) routes.Add("GET", path, everybody, HandlePage, kEventLoop);
  return routes.Take();
}

}  // namespace moestro::router
