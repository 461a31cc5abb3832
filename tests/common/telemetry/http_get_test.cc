#include "common/telemetry/http_get.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <thread>

namespace moestro {
namespace {

using boost::asio::ip::tcp;
using testing::HasSubstr;

// Answers one connection with `reply`; an empty one: never.
class OneAnswer {
 public:
  explicit OneAnswer(std::string reply)
      : acceptor_(context_, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0)),
        thread_([this, answer = std::move(reply)] {
          tcp::socket socket = acceptor_.accept();
          boost::system::error_code error;
          boost::asio::read_until(socket, boost::asio::dynamic_buffer(request_), "\r\n\r\n", error);
          if (!answer.empty()) boost::asio::write(socket, boost::asio::buffer(answer), error);
          if (answer.empty()) socket.read_some(boost::asio::buffer(&byte_, 1), error);  // until the client is gone
        }) {}
  ~OneAnswer() { thread_.join(); }

  Url url() const {
    return {.host = "127.0.0.1", .port = std::to_string(acceptor_.local_endpoint().port()), .path = "/m"};
  }
  const std::string& request() const { return request_; }

 private:
  boost::asio::io_context context_;
  tcp::acceptor acceptor_;
  std::string request_;
  char byte_ = 0;
  std::thread thread_;
};

TEST(ParseUrl, TakesTheUsualForms) {
  EXPECT_EQ(ParseUrl("http://h:9100/metrics")->path, "/metrics");
  EXPECT_EQ(ParseUrl("127.0.0.1:9100")->host, "127.0.0.1");
  EXPECT_EQ(ParseUrl("127.0.0.1:9100")->path, "/metrics");
  EXPECT_EQ(ParseUrl("h:1/x/y")->path, "/x/y");
  for (const char* bad : {"", "host", "https://h:1", ":9100", "h:"}) {
    EXPECT_EQ(ParseUrl(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(HttpGet, GivesTheBody) {
  std::string request;
  {
    OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    EXPECT_EQ(*HttpGet(server.url(), 5), "hello");
    request = server.request();
  }
  EXPECT_THAT(request, HasSubstr("GET /m HTTP/1.1\r\n"));
}

TEST(HttpGet, ErrorsNameTheAddress) {
  {
    OneAnswer server("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    const auto body = HttpGet(server.url(), 5);
    EXPECT_EQ(body.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(body.status().message()), HasSubstr("404"));
  }
  {
    OneAnswer server("");
    EXPECT_EQ(HttpGet(server.url(), 0.1).status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  const auto nobody = HttpGet({.host = "127.0.0.1", .port = "1", .path = "/"}, 5);
  EXPECT_EQ(nobody.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(nobody.status().message()), HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace moestro
