// libFuzzer: bytes of a client's connection. The first byte says in pieces of how many bytes they arrive. Whatever
// comes, the connection ends, what it has answered is HTTP, and no body stays counted. Every request that an endpoint
// saw is one that a strict reader of RFC 9112 sees in the same bytes, and they come in the same order.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/telemetry/metrics.h"
#include "common/text/json/surrogates.h"
#include "services/router/http/connection.h"
#include "tests/fuzz/rfc9112_reader.h"

namespace moestro::router {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// A client that sends `input` and takes everything.
class RecordedClient final : public Transport {
 public:
  RecordedClient(std::string_view input, size_t piece, std::string& output)
      : input_(input), piece_(piece), output_(output) {}

  asio::awaitable<Opening> Open(std::string& /*why*/) override { co_return Opening::kDone; }
  asio::awaitable<size_t> Read(asio::mutable_buffer buffer, error_code& error) override {
    const size_t bytes = std::min({piece_, buffer.size(), input_.size()});
    if (bytes == 0) error = asio::error::eof;
    std::copy_n(input_.data(), bytes, static_cast<char*>(buffer.data()));
    input_.remove_prefix(bytes);
    // Lets the others run first, as a socket would.
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    co_return bytes;
  }
  asio::awaitable<void> Write(const std::vector<asio::const_buffer>& buffers, error_code& /*error*/) override {
    for (const asio::const_buffer& buffer : buffers) {
      output_.append(static_cast<const char*>(buffer.data()), buffer.size());
    }
    co_return;
  }
  void ShutdownSend() override {}
  void Close() override {}

 private:
  std::string_view input_;
  const size_t piece_;
  std::string& output_;
};

using testing::ReadRequest;
std::vector<ReadRequest> seen;  // by endpoints

void See(const HttpRequest& request) {
  const RequestHead& head = request.head;
  seen.push_back({head.method, head.path + (head.query.empty() ? "" : "?" + head.query), request.body.text});
}

// A target may have escapes, the server's name, an empty query, or slashes and a "/v1" too much, which endpoints do not
// see. Halves of characters in a body are repaired.
bool IsSame(const ReadRequest& read, const ReadRequest& request) {
  std::string body = read.body;
  text::ReplaceLoneSurrogates(body);
  const std::string& target = read.target;
  const bool is_plain = target.find_first_of("%?") == std::string::npos && target.find("//") == std::string::npos &&
                        !target.ends_with('/');
  return read.method == request.method && body == request.body &&
         (!is_plain || read.target.ends_with(request.target) || request.target == "/");
}

Endpoints MakeTestEndpoints() {
  Endpoints endpoints;
  const auto add = [&](const char* method, const char* path, Endpoint::Handle handle, Endpoint::Admit admit = {}) {
    endpoints.Add({.method = method,
                   .path = path,
                   .handle =
                       [handle = std::move(handle)](HttpRequest& request, Response& response) {
                         See(request);
                         return handle(request, response);
                       },
                   .where = Endpoint::Where::kEventLoop,
                   .admit = std::move(admit)});
  };
  add("POST", "/echo",
      [](HttpRequest& request, Response& response) { return response.Send(200, {}, request.body.text); });
  add("GET", "/items/*", [](HttpRequest& request, Response& response) {
    return response.Send(200, {{"Content-Type", "text/plain"}}, request.head.query);
  });
  add("POST", "/stream", [](HttpRequest& request, Response& response) {
    absl::Status status = response.Begin({});
    for (const char byte : request.body.text) status.Update(response.Write({byte}));
    return status;
  });
  add(
      "GET", "/private", [](HttpRequest&, Response& response) { return response.Send(200, {}, "yes"); },
      [](const Credentials& credentials) -> absl::StatusOr<std::shared_ptr<Tenant>> {
        if (credentials.authorization == "Bearer k" || credentials.api_key == "k") return nullptr;
        return absl::UnauthenticatedError("a key is needed");
      });
  return endpoints;
}

void Serve(std::string_view input, size_t piece) {
  spdlog::set_level(spdlog::level::off);
  static const Endpoints* const endpoints = new Endpoints(MakeTestEndpoints());
  static SteadyClock* const clock = new SteadyClock;
  static prometheus::Counter* const counter = new prometheus::Counter;
  static SlowClients* const clients = new SlowClients({}, *clock, *counter, *counter);
  static MetricsRegistry* const registry = new MetricsRegistry("router");
  static HttpMetrics* const metrics = new HttpMetrics(*registry);
  WorkerPool workers(0);
  HttpShared shared{.limits = {.header_bytes = 1024, .body_bytes = 1024, .all_bodies_bytes = 1500},
                    .endpoints = *endpoints,
                    .workers = workers,
                    .slow_clients = *clients,
                    .metrics = *metrics,
                    .callers = {}};
  seen.clear();
  std::string output;
  asio::io_context loop;
  auto connection = std::make_shared<Connection>(shared, std::make_unique<RecordedClient>(input, piece, output),
                                                 loop.get_executor(), "127.0.0.1");
  connection->Start();
  loop.run();
  if (connection->open() || shared.bodies.all != 0) std::abort();
  connection = nullptr;
  if (!output.empty() && !output.starts_with("HTTP/1.1 ")) std::abort();
  const std::vector<ReadRequest> read = testing::Rfc9112Reader::Read(input);
  auto next = read.begin();
  for (const ReadRequest& request : seen) {
    next = std::find_if(next, read.end(), [&](const ReadRequest& one) { return IsSame(one, request); });
    if (next++ == read.end()) std::abort();  // smuggled
  }
}

}  // namespace
}  // namespace moestro::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  moestro::router::Serve({reinterpret_cast<const char*>(data) + 1, size - 1}, data[0] == 'a' ? 8192 : 1 + data[0] % 64);
  return 0;
}
