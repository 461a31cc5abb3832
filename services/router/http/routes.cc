#include "services/router/http/routes.h"

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

// Files and batches, which must answer with what to do where there are none.
void AddBatchEndpoints(const HttpApi& api, const Endpoint::Admit& generate, const Endpoint::Admit& any_key,
                       Endpoints& endpoints) {
  using Handle = absl::Status(const HttpApi&, const HttpRequest&, Response&);
  const auto add = [&](const char* method, const char* path, const Endpoint::Admit& admit, Handle* handle,
                       std::optional<uint64_t> body_bytes = std::nullopt) {
    endpoints.Add({.method = method,
                   .path = path,
                   .handle = [&api, handle](HttpRequest& from, Response& to) { return handle(api, from, to); },
                   .admit = admit,
                   .body_bytes = body_bytes});
  };
  const auto upload = api.batches == nullptr ? std::nullopt : std::optional(kMaxUploadBytes);
  add("POST", "/v1/files", generate, HandleUploadFile, upload);
  add("GET", "/v1/files", any_key, HandleListFiles);
  add("GET", "/v1/files/*", any_key, HandleFile);
  add("DELETE", "/v1/files/*", any_key, HandleDeleteFile);
  add("POST", "/v1/batches", generate, HandleCreateBatch);
  add("GET", "/v1/batches", any_key, HandleListBatches);
  add("GET", "/v1/batches/*", any_key, HandleBatch);
  add("POST", "/v1/batches/*", any_key, HandleCancelBatch);
  add("POST", "/v1/messages/batches", generate, HandleCreateMessageBatch, upload);
  add("GET", "/v1/messages/batches", any_key, HandleListMessageBatches);
  add("GET", "/v1/messages/batches/*", any_key, HandleMessageBatch);
  add("POST", "/v1/messages/batches/*", any_key, HandleCancelMessageBatch);
  add("DELETE", "/v1/messages/batches/*", any_key, HandleDeleteMessageBatch);
}

void AddOllamaEndpoints(const HttpApi& api, const Endpoint::Admit& generate, const Endpoint::Admit& any_key,
                        Endpoints& endpoints) {
  constexpr auto kEventLoop = Endpoint::Where::kEventLoop;
  const auto add = [&](const char* method, const char* path, const Endpoint::Admit& admit, Endpoint::Handle handle,
                       Endpoint::Where where = Endpoint::Where::kWorker) {
    endpoints.Add({.method = method, .path = path, .handle = std::move(handle), .where = where, .admit = admit});
  };
  add("POST", "/api/chat", generate,
      [&api](HttpRequest& from, Response& to) { return HandleOllamaChat(api, from, to); });
  add("POST", "/api/generate", generate,
      [&api](HttpRequest& from, Response& to) { return HandleOllamaGenerate(api, from, to); });
  add("POST", "/api/show", any_key,
      [&api](HttpRequest& from, Response& to) { return HandleOllamaShow(api, from, to); });
  add(
      "GET", "/api/tags", any_key, [&api](HttpRequest&, Response& to) { return HandleOllamaTags(api, to); },
      kEventLoop);
  add(
      "GET", "/api/ps", any_key, [&api](HttpRequest&, Response& to) { return HandleOllamaPs(api, to); }, kEventLoop);
  add(
      "GET", "/api/version", Endpoint::Admit(), [](HttpRequest&, Response& to) { return HandleOllamaVersion(to); },
      kEventLoop);
  const std::pair<const char*, const char*> others[] = {
      {"POST", "/api/pull"},     {"POST", "/api/push"},  {"POST", "/api/create"},    {"POST", "/api/copy"},
      {"DELETE", "/api/delete"}, {"POST", "/api/embed"}, {"POST", "/api/embeddings"}};
  for (const auto& [method, path] : others) {
    add(method, path, any_key, [path](HttpRequest&, Response& to) { return RefuseOllama(path, to); });
  }
}

}  // namespace

Endpoints MakeEndpoints(const HttpApi& api) {
  constexpr auto kEventLoop = Endpoint::Where::kEventLoop;
  Endpoints endpoints;
  const auto add = [&](const char* method, const char* path, const Endpoint::Admit& admit, Endpoint::Handle handle,
                       Endpoint::Where where = Endpoint::Where::kWorker) {
    endpoints.Add({.method = method, .path = path, .handle = std::move(handle), .where = where, .admit = admit});
  };
  const auto may = [&api](access::Endpoint endpoint) -> Endpoint::Admit {
    return [&api, endpoint](const Credentials& credentials) { return api.access.Admit(credentials, endpoint); };
  };
  const Endpoint::Admit everybody;
  const Endpoint::Admit any_key = [&api](const Credentials& credentials) { return api.access.Identify(credentials); };
  const Endpoint::Admit generate = may(access::Endpoint::kGenerate);
  const Endpoint::Admit tokenize = may(access::Endpoint::kTokenize);
  add(
      "GET", "/health", everybody, [&api](HttpRequest&, Response& to) { return HandleHealth(api, to); }, kEventLoop);
  add(
      "GET", "/version", everybody, [](HttpRequest&, Response& to) { return HandleVersion(to); }, kEventLoop);
  add(
      "GET", "/v1/models", any_key, [&api](HttpRequest&, Response& to) { return HandleModels(api, to); }, kEventLoop);
  add(
      "GET", "/v1/models/*", any_key, [&api](HttpRequest& from, Response& to) { return HandleModel(api, from, to); },
      kEventLoop);
  add("POST", "/v1/chat/completions", generate,
      [&api](HttpRequest& from, Response& to) { return HandleChatCompletions(api, from, to); });
  add("POST", "/v1/completions", generate,
      [&api](HttpRequest& from, Response& to) { return HandleCompletions(api, from, to); });
  add("POST", "/v1/responses", generate,
      [&api](HttpRequest& from, Response& to) { return HandleResponses(api, from, to); });
  add("POST", "/v1/responses/input_tokens", tokenize,
      [&api](HttpRequest& from, Response& to) { return HandleInputTokens(api, from, to); });
  add(
      "POST", "/v1/responses/*", any_key,
      [&api](HttpRequest& from, Response& to) { return HandleCancel(api, from, to); }, kEventLoop);
  AddBatchEndpoints(api, generate, any_key, endpoints);
  add("POST", "/v1/messages", generate,
      [&api](HttpRequest& from, Response& to) { return HandleMessages(api, from, to); });
  add("POST", "/v1/messages/count_tokens", tokenize,
      [&api](HttpRequest& from, Response& to) { return HandleCountTokens(api, from, to); });
  AddOllamaEndpoints(api, generate, any_key, endpoints);
  add("POST", "/v1/embeddings", any_key, [](HttpRequest&, Response&) {
    return absl::UnimplementedError("embeddings are not supported: this server generates text");
  });
  add("POST", "/tokenize", tokenize, [&api](HttpRequest& from, Response& to) { return HandleTokenize(api, from, to); });
  add("POST", "/detokenize", tokenize,
      [&api](HttpRequest& from, Response& to) { return HandleDetokenize(api, from, to); });
  add("POST", "/apply-template", tokenize,
      [&api](HttpRequest& from, Response& to) { return HandleApplyTemplate(api, from, to); });
  add(
      "GET", "/tokenizer_info", any_key, [&api](HttpRequest&, Response& to) { return HandleTokenizerInfo(api, to); },
      kEventLoop);
  add(
      "GET", "/props", any_key, [&api](HttpRequest&, Response& to) { return HandleProps(api, to); }, kEventLoop);
  if (!api.is_public) {
    add(
        "GET", "/slots", any_key, [&api](HttpRequest&, Response& to) { return HandleSlots(api, to); }, kEventLoop);
    add("GET", "/metrics", may(access::Endpoint::kAdmin),
        [&api](HttpRequest&, Response& to) { return HandleMetrics(api, to); });
  }
  // The page asks for a key itself, and sends it with its calls.
  for (const char* path : {"/", "/page/*"}) {
    add(
        "GET", path, everybody, [](HttpRequest& from, Response& to) { return HandlePage(from, to); }, kEventLoop);
  }
  return endpoints;
}

}  // namespace moestro::router
