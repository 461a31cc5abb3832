#include "services/router/http/routes.h"

#include "services/router/http/llama_endpoints.h"
#include "services/router/http/models.h"
#include "services/router/http/openai_chat.h"
#include "services/router/http/openai_completions.h"

namespace moestro::router {

Endpoints MakeEndpoints(const HttpApi& api) {
  constexpr auto kEventLoop = Endpoint::Where::kEventLoop;
  Endpoints endpoints;
  const auto add = [&](const char* method, const char* path, Endpoint::Handle handle,
                       Endpoint::Where where = Endpoint::Where::kWorker) {
    endpoints.Add({.method = method, .path = path, .handle = std::move(handle), .where = where});
  };
  add(
      "GET", "/health", [&api](HttpRequest&, Response& to) { return HandleHealth(api, to); }, kEventLoop);
  add(
      "GET", "/version", [](HttpRequest&, Response& to) { return HandleVersion(to); }, kEventLoop);
  add(
      "GET", "/v1/models", [&api](HttpRequest&, Response& to) { return HandleModels(api, to); }, kEventLoop);
  add(
      "GET", "/v1/models/*", [&api](HttpRequest& from, Response& to) { return HandleModel(api, from, to); },
      kEventLoop);
  add("POST", "/v1/chat/completions",
      [&api](HttpRequest& from, Response& to) { return HandleChatCompletions(api, from, to); });
  add("POST", "/v1/completions", [&api](HttpRequest& from, Response& to) { return HandleCompletions(api, from, to); });
  add("POST", "/v1/embeddings", [](HttpRequest&, Response&) {
    return absl::UnimplementedError("embeddings are not supported: this server generates text");
  });
  add("POST", "/tokenize", [&api](HttpRequest& from, Response& to) { return HandleTokenize(api, from, to); });
  add("POST", "/detokenize", [&api](HttpRequest& from, Response& to) { return HandleDetokenize(api, from, to); });
  add("POST", "/apply-template",
      [&api](HttpRequest& from, Response& to) { return HandleApplyTemplate(api, from, to); });
  add(
      "GET", "/props", [&api](HttpRequest&, Response& to) { return HandleProps(api, to); }, kEventLoop);
  add("GET", "/metrics", [&api](HttpRequest&, Response& to) { return HandleMetrics(api, to); });
  return endpoints;
}

}  // namespace moestro::router
