// What one connection makes the router hold, at each bound and beyond it: without sockets, and with a clock of the
// test.
#include "services/router/http/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cstring>
#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/router/http/signal.h"
#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
namespace asio = boost::asio;

// A client's side of the stream.
struct Wire {
  std::string sent;  // by the client
  size_t read = 0;   // of that, by the server
  std::string answer;
  bool closed = false;
};

class FakeTransport final : public Transport {
 public:
  FakeTransport(Wire& wire, const asio::any_io_executor& executor) : wire_(wire), more_(executor) {}

  asio::awaitable<Opening> Open(std::string& /*why*/) override { co_return Opening::kDone; }
  asio::awaitable<size_t> Read(asio::mutable_buffer buffer, boost::system::error_code& error) override {
    while (wire_.read == wire_.sent.size() && !wire_.closed) co_await more_.Wait();
    if (wire_.closed) error = asio::error::operation_aborted;
    const size_t bytes = std::min(buffer.size(), wire_.sent.size() - wire_.read);
    std::memcpy(buffer.data(), wire_.sent.data() + wire_.read, bytes);
    wire_.read += bytes;
    // Lets the others run first, as a socket would.
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    co_return bytes;
  }
  asio::awaitable<void> Write(const std::vector<asio::const_buffer>& buffers, boost::system::error_code&) override {
    for (const asio::const_buffer& buffer : buffers) {
      wire_.answer.append(static_cast<const char*>(buffer.data()), buffer.size());
    }
    co_return;
  }
  void ShutdownSend() override {}
  void Close() override {
    wire_.closed = true;
    more_.Notify();
  }

 private:
  Wire& wire_;
  Signal more_;
};

class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() {
    spdlog::set_level(spdlog::level::off);
    const auto echo = [](HttpRequest& request, Response& response) {
      return response.Send(200, {}, absl::StrCat(request.body.text.size(), " bytes"));
    };
    endpoints_.Add({.method = "POST", .path = "/echo", .handle = echo, .where = Endpoint::Where::kEventLoop});
    endpoints_.Add({.method = "POST",
                    .path = "/upload",
                    .handle = echo,
                    .where = Endpoint::Where::kEventLoop,
                    .body_bytes = 1000});
    endpoints_.Add({.method = "POST",
                    .path = "/private",
                    .handle = echo,
                    .where = Endpoint::Where::kEventLoop,
                    .admit = [](const Credentials&) { return absl::UnauthenticatedError("a key is needed"); }});
    endpoints_.Add({.method = "GET", .path = "/wait", .handle = [this](HttpRequest&, Response& response) {
                      const absl::Status begun = response.Begin({});
                      go_.get_future().wait();
                      return begun;
                    }});
  }
  ~ConnectionTest() override {
    connection_->Close();
    Run();
    go_.set_value();
  }

  // On a new connection. Returns the answer.
  std::string Send(const std::string& text, const HttpLimits& limits = {}) {
    if (connection_ != nullptr) connection_->Close();
    Run();
    shared_.reset(new HttpShared{.limits = limits,
                                 .endpoints = endpoints_,
                                 .workers = workers_,
                                 .slow_clients = clients_,
                                 .metrics = metrics_,
                                 .callers = {}});
    wires_.push_back(std::make_unique<Wire>());
    wire_ = wires_.back().get();
    wire_->sent = text;
    connection_ = std::make_shared<Connection>(*shared_, std::make_unique<FakeTransport>(*wire_, loop_.get_executor()),
                                               loop_.get_executor(), "127.0.0.1");
    begun_ = std::chrono::steady_clock::now();
    connection_->Start();
    Run();
    return wire_->answer;
  }
  static std::string Post(const std::string& path, size_t body, const std::string& headers = "Host: x\r\n") {
    return absl::StrCat("POST ", path, " HTTP/1.1\r\n", headers, "Content-Length: ", body, "\r\n\r\n",
                        std::string(body, 'b'));
  }
  // A request that runs until the test ends, and what follows it.
  void SendWaiting(const std::string& ahead, const HttpLimits& limits = {}) {
    Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n" + ahead, limits);
    loop_.restart();
    while (wire_->answer.empty()) loop_.run_one();
    Run();
    EXPECT_THAT(wire_->answer, StartsWith("HTTP/1.1 200"));
  }
  // The clock says so much more than when the connection began.
  std::string After(std::chrono::seconds time) {
    connection_->Tick(begun_ + time);
    Run();
    return wire_->answer;
  }

  // Whatever can run.
  void Run() {
    loop_.restart();
    loop_.poll();
  }

  testing::FakeRequestClock clock_;
  MetricsRegistry registry_{"router"};
  HttpMetrics metrics_{registry_};
  prometheus::Counter stalled_, behind_;
  SlowClients clients_{{}, clock_, stalled_, behind_};
  Endpoints endpoints_;
  asio::io_context loop_;
  std::promise<void> go_;
  WorkerPool workers_{1};
  std::unique_ptr<HttpShared> shared_;
  std::vector<std::unique_ptr<Wire>> wires_;
  Wire* wire_ = nullptr;
  std::chrono::steady_clock::time_point begun_;
  std::shared_ptr<Connection> connection_;
};

// The first line, and the fields behind it.
TEST_F(ConnectionTest, AHeaderIsBounded) {
  const std::string request = Post("/echo", 0);
  HttpLimits limits{.header_bytes = static_cast<uint32_t>(request.size() - request.find("Host"))};
  EXPECT_THAT(Send(request, limits), StartsWith("HTTP/1.1 200"));
  --limits.header_bytes;
  EXPECT_THAT(Send(request, limits), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Send("GET /" + std::string(100, 'a'), {.header_bytes = 100}), StartsWith("HTTP/1.1 431"));
}

TEST_F(ConnectionTest, ABodyIsBounded) {
  const HttpLimits limits{.body_bytes = 100};
  EXPECT_THAT(Send(Post("/echo", 100), limits), HasSubstr("100 bytes"));
  EXPECT_THAT(Send(Post("/echo", 101), limits), StartsWith("HTTP/1.1 413"));
  const auto chunk = [](size_t bytes) {
    return absl::StrCat("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", absl::Hex(bytes),
                        "\r\n", std::string(bytes, 'b'), "\r\n0\r\n\r\n");
  };
  EXPECT_THAT(Send(chunk(100), limits), HasSubstr("100 bytes"));
  EXPECT_THAT(Send(chunk(101), limits), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Send(Post("/upload", 1000), limits), HasSubstr("1000 bytes")) << "it has a bound of its own";
  EXPECT_THAT(Send(Post("/upload", 1001), limits), StartsWith("HTTP/1.1 413"));
}

TEST_F(ConnectionTest, AllBodiesAreBoundedApartFromAllUploads) {
  const HttpLimits limits{.all_bodies_bytes = 100, .all_uploads_bytes = 200};
  EXPECT_THAT(Send(Post("/echo", 100), limits), HasSubstr("100 bytes"));
  EXPECT_THAT(Send(Post("/echo", 101), limits), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Send(Post("/upload", 200), limits), HasSubstr("200 bytes"));
  EXPECT_THAT(Send(Post("/upload", 201), limits), StartsWith("HTTP/1.1 503"));
}

TEST_F(ConnectionTest, WhatAClientSendsAheadIsBounded) {
  SendWaiting(std::string(1 << 20, 'a'));
  EXPECT_LE(wire_->read, size_t{80} << 10);
}

TEST_F(ConnectionTest, WhatARefusedClientSendsIsReadUpToABound) {
  EXPECT_THAT(Send(Post("/private", 4 << 20)), StartsWith("HTTP/1.1 401"));
  EXPECT_GE(wire_->read, size_t{1} << 20);
  EXPECT_LE(wire_->read, (size_t{1} << 20) + (80 << 10));
  EXPECT_TRUE(wire_->closed);
}

TEST_F(ConnectionTest, TheAnswerToARefusedBodySaysThatTheConnectionEnds) {
  EXPECT_THAT(Send(Post("/private", 0)), HasSubstr("Connection: keep-alive"));
  EXPECT_FALSE(wire_->closed);
  EXPECT_THAT(Send(Post("/private", 10)), HasSubstr("Connection: close"));
}

TEST_F(ConnectionTest, OneEmptyLineBehindABodyBelongsToNothing) {
  const std::string two = Post("/echo", 1) + "\r\n" + Post("/echo", 2);
  EXPECT_THAT(Send(two), HasSubstr("2 bytes"));
  EXPECT_FALSE(wire_->closed);
  EXPECT_THAT(Send("\r\n" + Post("/echo", 1)), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Send("\r\n\r\n" + Post("/echo", 1)), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Send("\n" + Post("/echo", 1)), StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(Send("\r"), "");
  EXPECT_FALSE(wire_->closed);
}

TEST_F(ConnectionTest, CodingsOfABodyAreRefused) {
  const std::string gzip = Send(Post("/echo", 1, "Host: x\r\nContent-Encoding: gzip\r\n"));
  EXPECT_THAT(gzip, StartsWith("HTTP/1.1 415"));
  EXPECT_THAT(gzip, HasSubstr("Accept-Encoding: identity\r\n"));
  EXPECT_THAT(Send(Post("/echo", 1, "Host: x\r\nContent-Encoding: Identity\r\n")), StartsWith("HTTP/1.1 200"));
}

TEST_F(ConnectionTest, EveryAnswerHasItsDateAndAName) {
  for (const std::string& request :
       {Post("/echo", 1), Post("/none", 0), Post("/private", 0), std::string("x\r\n\r\n")}) {
    const std::string answer = Send(request);
    EXPECT_THAT(answer, ContainsRegex("\r\nDate: [A-Z][a-z][a-z], [0-9][0-9] [A-Z][a-z][a-z] 20[0-9][0-9] "
                                      "[0-9:]* GMT\r\n"));
    EXPECT_THAT(answer, ContainsRegex("\r\nx-request-id: req_[0-9a-f]+\r\nrequest-id: req_[0-9a-f]+\r\n"));
  }
  const auto named = [&](const std::string& id) {
    return Send(Post("/echo", 1, absl::StrCat("Host: x\r\nX-Request-Id: ", id, "\r\n")));
  };
  EXPECT_THAT(named("a.B:9_-"), HasSubstr("\r\nx-request-id: a.B:9_-\r\nrequest-id: a.B:9_-\r\n"));
  EXPECT_THAT(named(std::string(128, 'a')), HasSubstr(std::string(128, 'a')));
  for (const std::string& id :
       {std::string(129, 'a'), std::string("a b"), std::string("a\"]"), std::string("\xC3\xA4")}) {
    EXPECT_THAT(named(id), HasSubstr("\r\nx-request-id: req_")) << id;
  }
}

TEST_F(ConnectionTest, HalvesOfCharactersAreRepairedButInFiles) {
  const auto post = [](const std::string& path) {
    const std::string body = R"("\ud83d")";
    return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
  };
  endpoints_.Add(
      {.method = "POST",
       .path = "/same",
       .handle = [](HttpRequest& request, Response& response) { return response.Send(200, {}, request.body.text); },
       .where = Endpoint::Where::kEventLoop});
  endpoints_.Add(
      {.method = "POST",
       .path = "/file",
       .handle = [](HttpRequest& request, Response& response) { return response.Send(200, {}, request.body.text); },
       .where = Endpoint::Where::kEventLoop,
       .body_bytes = 100});
  EXPECT_THAT(Send(post("/same")), HasSubstr(R"("\ufffd")"));
  EXPECT_THAT(Send(post("/file")), HasSubstr(R"("\ud83d")"));
}

TEST_F(ConnectionTest, APathThatIsNotHereNamesTheNearest) {
  EXPECT_THAT(Send(Post("/ech", 0)), HasSubstr("there is nothing at /ech; the nearest that is here is /echo"));
  EXPECT_THAT(Send(Post("/api/upload", 0)), HasSubstr("the nearest that is here is /upload"));
  EXPECT_THAT(Send(Post("/something/else", 0)), Not(HasSubstr("nearest")));
}

TEST_F(ConnectionTest, TimesAreBounded) {
  using std::chrono::seconds;
  const HttpLimits limits{.idle = seconds(1000), .header = seconds(100), .body = seconds(200), .linger = seconds(50)};
  Send("", limits);
  EXPECT_EQ(After(seconds(99)), "");
  EXPECT_FALSE(wire_->closed);
  After(seconds(101));
  EXPECT_TRUE(wire_->closed) << "a client that says nothing";

  Send("POST /ec", limits);
  EXPECT_EQ(After(seconds(99)), "");
  EXPECT_THAT(After(seconds(101)), StartsWith("HTTP/1.1 408"));
  After(seconds(49));
  EXPECT_FALSE(wire_->closed);
  After(seconds(51));
  EXPECT_TRUE(wire_->closed);

  Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nb", limits);
  EXPECT_EQ(After(seconds(199)), "");
  EXPECT_THAT(After(seconds(201)), StartsWith("HTTP/1.1 408"));

  Send(Post("/echo", 2), limits);
  After(seconds(999));
  EXPECT_FALSE(wire_->closed);
  After(seconds(1001));
  EXPECT_TRUE(wire_->closed) << "idle";

  SendWaiting("", limits);
  After(seconds(100000));
  EXPECT_FALSE(wire_->closed) << "it waits for the answer, not for the client";
}

}  // namespace
}  // namespace moestro::router
