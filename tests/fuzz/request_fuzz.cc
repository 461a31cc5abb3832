// libFuzzer: bodies of requests, through the endpoints of the router. The first byte, a digit, chooses the endpoint.
// The line for pages has no room, so that a request ends where it would need a role. Whatever a body says, it is
// answered, and not as if the router were at fault.
#include <spdlog/spdlog.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/exceptions.h"
#include "services/router/http/errors.h"
#include "services/router/http/routes.h"
#include "tests/services/router/tiny_tokenizer.h"

namespace moestro::router {
namespace {

constexpr const char* kPaths[] = {"/v1/chat/completions",      "/v1/completions", "/v1/responses", "/v1/messages",
                                  "/v1/messages/count_tokens", "/tokenize",       "/detokenize",   "/apply-template"};

constexpr char kTemplate[] =
    "{{ bos_token }}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|{{ m.role }}|>"
    "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

std::shared_ptr<const ServedModel> MakeModel() {
  auto text = ModelText::Create({.tokenizer_json = testing::TinyTokenizerJson(),
                                 .chat_template = kTemplate,
                                 .bos_token = "<|bos|>",
                                 .eos_token = "<|end|>",
                                 .add_bos_token = true});
  if (!text.ok()) std::abort();
  auto model = std::make_shared<ServedModel>();
  model->name = "tiny";
  model->max_context_tokens = 4096;
  model->vocab_size = testing::kTokenCount;
  model->stop_ids = {testing::kEnd};
  model->text = *std::move(text);
  return model;
}

// A router whose roles are away.
class Node {
 public:
  Node() {
    spdlog::set_level(spdlog::level::off);
    board_.SetModel(MakeModel());
    board_.SetReady();
  }

  // The status of the answer.
  int Post(const std::string& path, std::string_view body) {
    HttpRequest request{.head = {.method = "POST", .path = path}};
    request.body.text = std::string(body);
    const Endpoint* endpoint = endpoints_.Find(request.head).endpoint;
    auto tenant = endpoint->admit({});
    if (!tenant.ok()) std::abort();
    request.tenant = *std::move(tenant);
    Response response(
        clients_, [] {}, [] {});
    response.call().SetTenant(request.tenant);
    const absl::Status status = CatchExceptions([&] { return endpoint->handle(request, response); });
    const auto head = response.Take().head;
    if (head) return head->status;
    if (status.ok()) return 0;
    const HttpError error = OpenAiError(status);
    if (error.status == 500) std::fprintf(stderr, "%s: %s\n", path.c_str(), std::string(status.message()).c_str());
    return error.status;
  }

 private:
  SteadyClock clock_;
  MetricsRegistry registry_{"router"};
  RouterMetrics metrics_{registry_};
  AccessControl access_{"", registry_, clock_};
  ModelBoard board_;
  PeerChannels peers_{"unix:/nonexistent/prefill", "unix:/nonexistent/decode"};
  RoleMonitor roles_{[](Role) { return Life::kAway; }, [](Role) {}, clock_, std::chrono::seconds(0)};
  AdmissionQueue queue_{0};
  PathPolicy policy_{{}, clock_};
  RequestRunner runner_{
      board_, {roles_, queue_, policy_, metrics_, clock_}, {.default_max_tokens = 16}, [] { return uint64_t{1}; }};
  SlowClients clients_{{}, clock_, metrics_.clients_stalled, metrics_.clients_behind};
  WorkerPool workers_{0};  // the choices of a request run one after the other
  const HttpApi api_{.runner = runner_,
                     .board = board_,
                     .peers = peers_,
                     .workers = workers_,
                     .registry = registry_,
                     .metrics = metrics_,
                     .access = access_,
                     .clock = clock_,
                     .ready = [] { return absl::OkStatus(); }};
  const Endpoints endpoints_ = MakeEndpoints(api_);
};

}  // namespace
}  // namespace moestro::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moestro::router;
  if (size == 0) return 0;
  static Node* const node = new Node;
  const std::string path = kPaths[data[0] % std::size(kPaths)];
  const int status = node->Post(path, {reinterpret_cast<const char*>(data) + 1, size - 1});
  // 429: the line is full. 501: a kind of content or tool that no model here reads. 503: scoring needs prefill.
  if (status != 200 && status != 400 && status != 404 && status != 429 && status != 501 && status != 503) {
    std::fprintf(stderr, "%s: status %d\n", path.c_str(), status);
    std::abort();
  }
  return 0;
}
