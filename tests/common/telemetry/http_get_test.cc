#include "common/telemetry/http_get.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <mutex>
#include <string>
#include <thread>

#include "tests/support/hang.h"

namespace {

std::timed_mutex resolver_hangs;
std::atomic<bool> resolver_returned = false;

}  // namespace

// Replaces the C library's function, which it calls. Looking up the name "hangs" takes as long as resolver_hangs is
// held (kHang at most, so that a test that waits for it fails), and fails.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  if (name != nullptr && std::string(name) == "hangs") {
    if (resolver_hangs.try_lock_for(moestro::kHang)) resolver_hangs.unlock();
    resolver_returned = true;
    return EAI_NONAME;
  }
  static const auto next = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return next(name, service, hints, found);
}

namespace moestro {
namespace {

using boost::asio::ip::tcp;
using testing::HasSubstr;

// Answers one connection with `reply`; if empty, never answers.
class OneAnswer {
 public:
  explicit OneAnswer(std::string reply, std::string host = "127.0.0.1",
                     const boost::asio::ip::address& address = boost::asio::ip::address_v4::loopback())
      : host_(std::move(host)),
        acceptor_(context_, tcp::endpoint(address, 0)),
        thread_([this, answer = std::move(reply)] {
          tcp::socket socket = acceptor_.accept();
          boost::system::error_code error;
          boost::asio::read_until(socket, boost::asio::dynamic_buffer(request_), "\r\n\r\n", error);
          if (!answer.empty()) boost::asio::write(socket, boost::asio::buffer(answer), error);
          if (answer.empty()) socket.read_some(boost::asio::buffer(&byte_, 1), error);  // until the client is gone
        }) {}
  ~OneAnswer() {
    boost::system::error_code error;
    tcp::socket(context_).connect(acceptor_.local_endpoint(), error);  // if nobody else did
    thread_.join();
  }

  Url url() const { return *ParseUrl(host_ + ":" + std::to_string(acceptor_.local_endpoint().port()) + "/m"); }
  const std::string& request() const { return request_; }

 private:
  const std::string host_;
  boost::asio::io_context context_;
  tcp::acceptor acceptor_;
  std::string request_;
  char byte_ = 0;
  std::thread thread_;
};

TEST(ParseUrl, TakesTheUsualForms) {
  EXPECT_EQ(ParseUrl("http://h:9100/metrics")->text, "http://h:9100/metrics");
  EXPECT_EQ(ParseUrl("127.0.0.1:9100")->host, "127.0.0.1");
  EXPECT_EQ(ParseUrl("127.0.0.1:9100")->port, "9100");
  EXPECT_EQ(ParseUrl("127.0.0.1:9100")->text, "http://127.0.0.1:9100/metrics");
  EXPECT_EQ(ParseUrl("ftp.h:1/x/y?z=1")->text, "http://ftp.h:1/x/y?z=1");
  EXPECT_EQ(ParseUrl("[::1]:9100")->host, "[::1]");
  for (const char* bad : {"", "host", "https://h:1", ":9100", "h:", "h:x", "h:65536"}) {
    EXPECT_EQ(ParseUrl(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(HttpGet, GivesTheBody) {
  std::string request;
  {
    OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    EXPECT_EQ(*HttpGet(server.url(), kHangSeconds), "hello");
    request = server.request();
  }
  EXPECT_THAT(request, HasSubstr("GET /m HTTP/1.1\r\n"));
}

TEST(HttpGet, BracketsOfAnAddressAreForTheServerOnly) {
  boost::asio::io_context context;
  boost::system::error_code error;
  const auto loopback = boost::asio::ip::address_v6::loopback();
  tcp::socket probe(context);
  if (!probe.open(tcp::v6(), error)) probe.bind({loopback, 0}, error);
  if (error) GTEST_SKIP() << "no IPv6 here: " << error.message();
  std::string request;
  {
    OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "[::1]", loopback);
    const auto body = HttpGet(server.url(), kHangSeconds);
    ASSERT_TRUE(body.ok()) << body.status();
    request = server.request();
  }
  EXPECT_THAT(request, HasSubstr("Host: [::1]:"));
}

TEST(HttpGet, TheResolverIsNotWaitedForEither) {
  const std::lock_guard hangs(resolver_hangs);
  EXPECT_EQ(HttpGet(*ParseUrl("hangs:1"), 0.1).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(resolver_returned);
}

TEST(HttpGet, ReadsNoMoreThanMetricsHave) {
  constexpr size_t kBytes = size_t{9} << 20;
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kBytes) + "\r\n\r\n" +
                   std::string(kBytes, 'x'));
  EXPECT_EQ(HttpGet(server.url(), kHangSeconds).status().code(), absl::StatusCode::kUnavailable);
}

TEST(HttpGet, ErrorsNameTheAddress) {
  {
    OneAnswer server("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    const auto body = HttpGet(server.url(), kHangSeconds);
    EXPECT_EQ(body.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(body.status().message()), HasSubstr("404"));
  }
  {
    OneAnswer server("");
    EXPECT_EQ(HttpGet(server.url(), 0.1).status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  const auto nobody = HttpGet(*ParseUrl("127.0.0.1:1"), kHangSeconds);
  EXPECT_EQ(nobody.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(nobody.status().message()), HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace moestro
