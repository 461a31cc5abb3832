// The HTTP server on real sockets, with endpoints of the test and short limits.
#include "services/router/http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/read.hpp>
#include <future>
#include <list>
#include <optional>

#include "absl/strings/str_cat.h"
#include "services/router/access/retry_after.h"
#include "services/router/http/worker_pool.h"
#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace asio = boost::asio;

// Of this machine in its network, or null. Nothing is sent.
std::optional<asio::ip::address> NetworkAddress() {
  asio::io_context context;
  asio::ip::udp::socket socket(context, asio::ip::udp::v4());
  boost::system::error_code error;
  socket.connect({asio::ip::make_address("203.0.113.1"), 9}, error);
  if (error) return std::nullopt;
  const asio::ip::address address = socket.local_endpoint().address();
  return address.is_loopback() ? std::nullopt : std::optional(address);
}

class Client {
 public:
  explicit Client(int port, const asio::ip::address& address = asio::ip::make_address("127.0.0.1")) {
    socket_.connect({address, static_cast<uint16_t>(port)});
  }
  void Send(const std::string& text) {
    boost::system::error_code ignored;
    asio::write(socket_, asio::buffer(text), ignored);
  }
  // Up to and including `end`, or the end of the connection.
  std::string ReadUntil(const std::string& end) {
    std::string text;
    char c = 0;
    boost::system::error_code error;
    while (!text.ends_with(end) && asio::read(socket_, asio::buffer(&c, 1), error) == 1) text += c;
    return text;
  }
  std::string ReadAll() { return ReadUntil("\x01never"); }
  void Close() { socket_.close(); }

 private:
  asio::io_context context_;
  asio::ip::tcp::socket socket_{context_};
};

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() { spdlog::set_level(spdlog::level::off); }

  void Start(HttpOptions options = {}) {
    if (options.address.empty()) options.address = "127.0.0.1:0";
    server_ = std::make_unique<HttpServer>(options, clients_, registry_);
    Endpoints endpoints;
    endpoints.Add({.method = "POST", .path = "/echo", .handle = [](HttpRequest& request, Response& response) {
                     return response.Send(200, {}, request.body.text);
                   }});
    endpoints.Add({.method = "GET", .path = "/wait", .handle = [this](HttpRequest&, Response& response) {
                     MOE_RETURN_IF_ERROR(response.Begin({}));
                     MOE_RETURN_IF_ERROR(response.Write("begun"));
                     const ClientCall::Watch watch(response.call(), [this] { left_.set_value(); });
                     go_.get_future().wait();
                     return response.Write("ended");
                   }});
    endpoints.Add({.method = "POST", .path = "/v1/messages", .handle = [](HttpRequest&, Response&) {
                     return absl::InvalidArgumentError("max_tokens: missing");
                   }});
    endpoints.Add({.method = "GET", .path = "/fail", .handle = [](HttpRequest&, Response&) -> absl::Status {
                     throw std::runtime_error("broken");
                   }});
    const auto admit = [this](const Credentials& credentials) -> absl::StatusOr<std::shared_ptr<Tenant>> {
      if (credentials.authorization == "Bearer full") {
        return WithRetryAfter(absl::ResourceExhaustedError("too many requests"), std::chrono::seconds(7));
      }
      if (credentials.authorization != "Bearer good" && credentials.api_key != "good") {
        return absl::UnauthenticatedError("an API key is needed");
      }
      return tenant_;
    };
    const auto name_tenant = [](HttpRequest& request, Response& response) {
      return response.Send(200, {}, request.tenant->name() + response.call().tenant()->name() + request.body.text);
    };
    endpoints.Add({.method = "POST", .path = "/private", .handle = name_tenant, .admit = admit});
    ASSERT_TRUE(server_->Start(std::move(endpoints)).ok());
  }
  Client Connect() { return Client(server_->port()); }

  testing::FakeRequestClock clock_;
  MetricsRegistry registry_{"router"};
  const std::shared_ptr<Tenant> tenant_ = std::make_shared<Tenant>("alice", registry_);
  prometheus::Counter stalled_, behind_;
  SlowClients clients_{{}, clock_, stalled_, behind_};
  std::promise<void> go_, left_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, Echoes) {
  Start();
  Client client = Connect();
  for (int i = 0; i < 3; ++i) {
    client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
    EXPECT_THAT(client.ReadUntil("hi"), StartsWith("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"));
  }
}

TEST_F(HttpServerTest, WithoutAKeyNoBodyIsRead) {
  Start();
  for (const char* header : {"", "Authorization: Bearer bad\r\n", "X-API-Key: bad\r\n"}) {
    Client client = Connect();
    client.Send(absl::StrCat("POST /private HTTP/1.1\r\nHost: x\r\n", header, "Content-Length: 1000000\r\n\r\n"));
    const std::string reply = client.ReadUntil("}}");
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 401 Unauthorized\r\n"));
    EXPECT_THAT(reply, HasSubstr("WWW-Authenticate: Bearer\r\n"));
    EXPECT_THAT(reply, HasSubstr("authentication_error"));
  }
  Client full = Connect();
  full.Send("POST /private HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_THAT(full.ReadUntil("}}"), HasSubstr("Retry-After: 7\r\n"));
  for (const char* header : {"authorization: Bearer good", "x-api-key: good"}) {
    Client client = Connect();
    client.Send(absl::StrCat("POST /private HTTP/1.1\r\nHost: x\r\n", header, "\r\nContent-Length: 2\r\n\r\nhi"));
    EXPECT_THAT(client.ReadUntil("hi"), EndsWith("\r\n\r\nalicealicehi"));
  }
}

// Whether an endpoint, or what comes before it, has made the error.
TEST_F(HttpServerTest, ErrorsHaveTheFormOfTheirPathAndItsRequestId) {
  Start();
  for (const char* request : {"GET /v1/messages HTTP/1.1\r\nHost: x\r\n", "POST /messages HTTP/1.1\r\nHost: x\r\n",
                              "POST /v1/messages HTTP/1.1\r\nHost: x\r\nHost: y\r\n",
                              "POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n",
                              "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n"}) {
    Client client = Connect();
    client.Send(absl::StrCat(request, "x-request-id: mine\r\nConnection: close\r\n\r\n"));
    const std::string reply = client.ReadAll();
    EXPECT_THAT(reply, HasSubstr("\r\nrequest-id: mine\r\n")) << request;
    EXPECT_THAT(reply, EndsWith(R"(,"request_id":"mine"})")) << request;
    EXPECT_THAT(reply, HasSubstr("Date: ")) << request;
  }
  Client ollama = Connect();
  ollama.Send("GET /api/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(ollama.ReadAll(), HasSubstr("\r\n\r\n{\"error\":\"there is nothing at /api/nothing"));
  // Before its end nobody knows the fields of a header, but the line with the path has come.
  Client large = Connect();
  large.Send("POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-much: " + std::string(20000, 'a'));
  const std::string reply = large.ReadUntil("\"}");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(large.ReadUntil("\"}"), StartsWith(",\"request_id\":\"req_"));
}

TEST_F(HttpServerTest, AnExceptionBecomesAnError) {
  Start();
  Client client = Connect();
  client.Send("GET /fail HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string reply = client.ReadAll();
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(reply, HasSubstr("broken"));
}

TEST_F(HttpServerTest, AStreamComesInChunks) {
  Start();
  Client client = Connect();
  client.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("begun"), HasSubstr("Transfer-Encoding: chunked\r\n"));
  go_.set_value();
  EXPECT_THAT(client.ReadUntil("0\r\n\r\n"), EndsWith("5\r\nended\r\n0\r\n\r\n"));
}

TEST_F(HttpServerTest, AStreamForAnOldClientEndsWithTheConnection) {
  Start();
  Client client = Connect();
  client.Send("GET /wait HTTP/1.0\r\n\r\n");
  client.ReadUntil("begun");
  go_.set_value();
  EXPECT_EQ(client.ReadAll(), "ended");
}

TEST_F(HttpServerTest, AClientThatLeavesEndsItsCall) {
  Start();
  Client client = Connect();
  client.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  client.ReadUntil("begun");
  client.Close();
  left_.get_future().wait();
  go_.set_value();
}

TEST_F(HttpServerTest, SlowSendersAreCutOff) {
  Start({.limits = {.header = std::chrono::milliseconds(1), .body = std::chrono::milliseconds(1)}});
  for (const char* sent : {"GET /ec", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nh"}) {
    std::string reply;
    // Without a word if the test itself was so slow that the server had none of it yet.
    for (int tries = 0; reply.empty() && tries < 100; ++tries) {
      Client client = Connect();
      client.Send(sent);
      reply = client.ReadAll();
    }
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 408")) << sent;
  }
  Client silent = Connect();
  EXPECT_EQ(silent.ReadAll(), "");
}

TEST_F(HttpServerTest, IdleConnectionsEnd) {
  Start({.limits = {.idle = std::chrono::milliseconds(1)}});
  Client client = Connect();
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_THAT(client.ReadAll(), EndsWith("\r\n\r\nhi"));
}

TEST_F(HttpServerTest, BodiesAreBoundedAloneAndTogether) {
  Start({.limits = {.body_bytes = 10, .all_bodies_bytes = 5}});
  Client large = Connect();
  large.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n");
  EXPECT_THAT(large.ReadAll(), StartsWith("HTTP/1.1 413"));
  Client chunked = Connect();
  chunked.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\n");
  EXPECT_THAT(chunked.ReadAll(), StartsWith("HTTP/1.1 413"));
  Client together = Connect();
  together.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nConnection: close\r\n\r\n012345");
  EXPECT_THAT(together.ReadAll(), StartsWith("HTTP/1.1 503"));
  Client small = Connect();
  small.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n01234");
  EXPECT_THAT(small.ReadUntil("01234"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, WithoutAWorkerARequestIsRefused) {
  Start({.workers = 1});
  Client busy = Connect();
  busy.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  busy.ReadUntil("begun");
  Client client = Connect();
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
  const std::string reply = client.ReadAll();
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 429"));
  EXPECT_THAT(reply, HasSubstr("Retry-After: "));
  go_.set_value();
}

TEST_F(HttpServerTest, AFullHouseClosesTheLongestUnused) {
  Start({.connections = 2});
  constexpr char kEcho[] = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
  Client first = Connect(), second = Connect();
  for (Client* client : {&second, &first}) {  // so that the second is unused for longer
    client->Send(kEcho);
    client->ReadUntil("hi");
  }
  Client third = Connect();
  third.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  third.ReadUntil("begun");
  EXPECT_EQ(second.ReadAll(), "");
  Client fourth = Connect();
  fourth.Send(kEcho);
  EXPECT_THAT(fourth.ReadUntil("hi"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(first.ReadAll(), "") << "the third has work";
  go_.set_value();
  EXPECT_THAT(third.ReadUntil("0\r\n\r\n"), EndsWith("0\r\n\r\n"));
}

// A quarter of eight. Connections of this machine itself do not count.
TEST_F(HttpServerTest, AnAddressOfTheNetworkHasItsShareOnly) {
  const std::optional<asio::ip::address> address = NetworkAddress();
  if (!address) GTEST_SKIP() << "this machine has no network";
  Start({.address = "0.0.0.0:0", .connections = 8});
  constexpr char kEcho[] = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
  const auto is_served = [&](Client& client) {
    client.Send(kEcho);
    return client.ReadUntil("hi").starts_with("HTTP/1.1 200");
  };
  std::list<Client> local, far;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(is_served(local.emplace_back(server_->port())));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(is_served(far.emplace_back(server_->port(), *address))) << i;
  EXPECT_EQ(far.front().ReadAll(), "") << "the third takes the place of the first";
  far.pop_front();
  for (Client& client : far) EXPECT_TRUE(is_served(client));
  for (Client& client : local) EXPECT_TRUE(is_served(client));
}

TEST_F(HttpServerTest, ConnectionsWithWorkAreBounded) {
  Start({.connections = 1});
  Client first = Connect();
  first.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  first.ReadUntil("begun");
  Client second = Connect();
  EXPECT_EQ(second.ReadAll(), "");
  go_.set_value();
}

// Sixteen connections: the last of them is for those who have shown a key.
TEST_F(HttpServerTest, AReserveIsForHoldersOfKeys) {
  Start({.connections = 16});
  constexpr char kPrivate[] = "POST /private HTTP/1.1\r\nHost: x\r\nx-api-key: good\r\nContent-Length: 2\r\n\r\nhi";
  constexpr char kEcho[] = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
  std::list<Client> held;
  for (int i = 0; i < 15; ++i) {
    held.emplace_back(server_->port()).Send(kEcho);
    EXPECT_THAT(held.back().ReadUntil("hi"), HasSubstr("Connection: keep-alive"));
  }
  Client without = Connect();
  without.Send(kEcho);
  EXPECT_THAT(without.ReadAll(), HasSubstr("Connection: close"));
  held.pop_front();
  Client with = Connect();
  with.Send(kPrivate);
  EXPECT_THAT(with.ReadUntil("hi"), HasSubstr("Connection: keep-alive"));
}

// A second request stands where a reader that knows no codings has the body.
TEST_F(HttpServerTest, WhatIsMisframedEndsTheConnection) {
  Start();
  for (const char* coding : {"identity", "gzip, chunked",
                             "\x0b"
                             "chunked"}) {
    Client client = Connect();
    client.Send(absl::StrCat("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ", coding,
                             "\r\n\r\nPOST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"));
    const std::string reply = client.ReadAll();
    EXPECT_THAT(reply, ::testing::AnyOf(StartsWith("HTTP/1.1 501"), StartsWith("HTTP/1.1 400"))) << coding;
    EXPECT_EQ(reply.find("HTTP/1.1 200"), std::string::npos) << reply;
  }
}

TEST_F(HttpServerTest, AChunkOfExtensionsIsRefusedAtOnce) {
  Start();
  Client client = Connect();
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;" + std::string(200000, 'a'));
  EXPECT_THAT(client.ReadUntil("}}"), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpServerTest, APageFromElsewhereIsRefusedBeforeItsEndpointIsFound) {
  Start({.callers = {.keyless = true, .loopback = true}});
  for (const char* fields : {"Host: x\r\nOrigin: https://evil.example", "Host: evil.example"}) {
    for (const char* target : {"POST /echo", "OPTIONS /echo", "GET /nowhere"}) {
      Client client = Connect();
      client.Send(absl::StrCat(target, " HTTP/1.1\r\n", fields, "\r\nConnection: close\r\n\r\n"));
      EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 403")) << target << fields;
    }
  }
}

TEST_F(HttpServerTest, DrainingLetsAnswersEnd) {
  Start();
  Client idle = Connect();
  idle.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
  idle.ReadUntil("hi");
  Client busy = Connect();
  busy.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  busy.ReadUntil("begun");
  server_->BeginDrain();
  EXPECT_EQ(idle.ReadAll(), "");
  go_.set_value();
  EXPECT_THAT(busy.ReadAll(), EndsWith("0\r\n\r\n"));
  server_->FinishDrain(std::chrono::steady_clock::now() + std::chrono::seconds(60));
}

TEST_F(HttpServerTest, ATakenAddressIsNamed) {
  Start();
  HttpServer second({.address = "127.0.0.1:" + std::to_string(server_->port())}, clients_, registry_);
  const absl::Status status = second.Start({});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--http-address"));
}

TEST(WorkerPoolTest, RunsAsManyAsItHasThreads) {
  std::promise<void> go;
  const std::shared_future<void> start = go.get_future().share();
  std::atomic<int> done{0};
  {
    WorkerPool pool(2);
    EXPECT_TRUE(pool.Run([&, start] { start.wait(), ++done; }));
    EXPECT_TRUE(pool.Run([&, start] { start.wait(), ++done; }));
    EXPECT_FALSE(pool.Run([&] { ++done; }));
    go.set_value();
  }
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace moestro::router
