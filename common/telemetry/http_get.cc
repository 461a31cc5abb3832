#include "common/telemetry/http_get.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <future>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace moestro {

namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using std::chrono::steady_clock;

struct Resolved {
  beast::error_code error;
  tcp::resolver::results_type found;
};

// The system's resolver heeds no deadline and cannot be stopped: it has a thread of its own, which nobody waits for
// once the deadline has passed.
Resolved Resolve(const Url& url, steady_clock::time_point deadline) {
  absl::string_view host = url.host;
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  std::packaged_task<Resolved()> resolve([host = std::string(host), port = url.port] {
    boost::asio::io_context context;
    Resolved resolved;
    resolved.found = tcp::resolver(context).resolve(host, port, resolved.error);
    return resolved;
  });
  std::future<Resolved> resolved = resolve.get_future();
  std::thread(std::move(resolve)).detach();
  if (resolved.wait_until(deadline) == std::future_status::ready) return resolved.get();
  return {.error = beast::error::timeout, .found = {}};
}

// Asynchronous, because only so does Beast keep time-outs.
class Exchange {
 public:
  Exchange(const Url& url, double timeout_seconds) : stream_(context_) {
    const auto deadline = steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1000 * timeout_seconds));
    request_.method(http::verb::get);
    request_.target(url.path);
    request_.version(11);
    request_.set(http::field::host, url.host);
    request_.set(http::field::connection, "close");
    const Resolved resolved = Resolve(url, deadline);
    if (Failed(resolved.error)) return;
    stream_.expires_at(deadline);
    stream_.async_connect(resolved.found, [this](beast::error_code error, const tcp::endpoint&) {
      if (!Failed(error)) Send();
    });
    context_.run();
  }

  beast::error_code error() const { return error_; }
  const http::response<http::string_body>& response() const { return response_; }

 private:
  bool Failed(beast::error_code error) {
    error_ = error;
    return static_cast<bool>(error);
  }
  void Send() {
    http::async_write(stream_, request_, [this](beast::error_code error, size_t) {
      if (Failed(error)) return;
      http::async_read(stream_, buffer_, response_,
                       [this](beast::error_code read_error, size_t) { Failed(read_error); });
    });
  }

  boost::asio::io_context context_{1};
  beast::tcp_stream stream_;
  http::request<http::empty_body> request_;
  beast::flat_buffer buffer_;
  http::response<http::string_body> response_;
  beast::error_code error_;
};

}  // namespace

absl::StatusOr<Url> ParseUrl(const std::string& text) {
  absl::string_view rest = text;
  absl::ConsumePrefix(&rest, "http://");
  const size_t slash = rest.find('/');
  const absl::string_view authority = rest.substr(0, slash);
  const size_t colon = authority.rfind(':');
  if (colon == absl::string_view::npos || colon == 0 || colon + 1 == authority.size() ||
      absl::StrContains(rest, "://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is no address of metrics: use http://HOST:PORT/metrics or HOST:PORT"));
  }
  return Url{.host = std::string(authority.substr(0, colon)),
             .port = std::string(authority.substr(colon + 1)),
             .path = slash == absl::string_view::npos ? "/metrics" : std::string(rest.substr(slash))};
}

absl::StatusOr<std::string> HttpGet(const Url& url, double timeout_seconds) {
  const Exchange exchange(url, timeout_seconds);
  const std::string what = absl::StrCat("http://", url.host, ":", url.port, url.path);
  if (exchange.error() == beast::error::timeout) {
    return absl::DeadlineExceededError(absl::StrCat(what, ": no answer within ", timeout_seconds, " s"));
  }
  if (exchange.error()) return absl::UnavailableError(absl::StrCat(what, ": ", exchange.error().message()));
  if (exchange.response().result() != http::status::ok) {
    return absl::UnavailableError(absl::StrCat(what, ": HTTP status ", exchange.response().result_int()));
  }
  return exchange.response().body();
}

}  // namespace moestro
