#include "services/router/http/connection.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/exceptions.h"
#include "common/telemetry/log.h"
#include "common/text/json/surrogates.h"
#include "services/router/http/answer_head.h"
#include "services/router/http/errors.h"
#include "services/router/http/framing.h"
#include "services/router/metrics.h"

namespace moestro::router {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

// Of what a client sends ahead while its request runs.
constexpr size_t kInputBytes = 64 << 10;
// From a client that is refused, so that it reads the answer before its connection breaks.
constexpr size_t kLingerBytes = 1 << 20;

int HexValue(char c) {
  if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return -1;
  return absl::ascii_isdigit(static_cast<unsigned char>(c)) ? c - '0' : (c | 0x20) - 'a' + 10;
}

// %41 becomes A; nullopt for what is no such escape.
std::optional<std::string> Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    if (i + 2 >= text.size() || HexValue(text[i + 1]) < 0 || HexValue(text[i + 2]) < 0) return std::nullopt;
    plain += static_cast<char>(HexValue(text[i + 1]) * 16 + HexValue(text[i + 2]));
    i += 2;
  }
  return plain;
}

// Of the header X-Request-Timeout, in seconds; nullopt: it is no such number. More than a year is no deadline.
std::optional<ClientCall::Deadline> DeadlineOf(std::string_view timeout) {
  constexpr double kYear = 365 * 24 * 3600;
  double seconds = 0;
  if (!absl::SimpleAtod(std::string(timeout), &seconds) || !(seconds > 0)) return std::nullopt;
  if (seconds > kYear) return ClientCall::Deadline();
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

constexpr size_t kMostRequestIdBytes = 128;

// Whether a client's own name of a request is fit for a header and a log.
bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kMostRequestIdBytes && std::ranges::all_of(id, [](unsigned char c) {
    return absl::ascii_isalnum(c) || std::string_view("._:-").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// The path and query of a target, which may name the server, too: "http://host/path".
std::string_view WithoutServer(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t path = target.find('/', scheme.size());
    return path == std::string_view::npos ? "/" : target.substr(path);
  }
  return target;
}

// The target of a header that is not whole: the second word of its first line.
std::string_view TargetOf(std::string_view begun) {
  const size_t begin = std::min(begun.find(' '), begun.size() - 1) + 1;
  return begun.substr(begin, begun.find_first_of(" \r\n", begin) - begin);
}

void Observe(prometheus::Histogram& histogram, std::chrono::steady_clock::duration time) {
  histogram.Observe(std::chrono::duration<double>(time).count());
}

}  // namespace

struct Connection::Exchange {
  explicit Exchange(const HttpLimits& limits) {
    parser.header_limit(limits.header_bytes);
    parser.body_limit(UINT64_MAX);  // until the endpoint is known
    parser.eager(false);
  }

  // By which an error has its form: the endpoint's, or else the one that was asked for.
  std::string_view known_path() const {
    const auto target = parser.get().target();
    return !path.empty() ? path
                         : WithoutServer(target.empty() ? asked : std::string_view(target.data(), target.size()));
  }

  // Notes how the request is refused; false, for the caller to return.
  bool Refuse(const HttpError& error, HttpHeaders headers = {}) {
    headers.merge(HeadersOf(error));
    refusal = Refusal{.status = error.status, .headers = std::move(headers), .body = error.body};
    return false;
  }
  bool Refuse(const absl::Status& status) { return Refuse(ErrorAt(known_path(), status, id)); }
  bool Refuse(int status, const std::string& message, HttpHeaders headers = {}) {
    return Refuse(ErrorAt(known_path(), status, message, id), std::move(headers));
  }
  // The same where nobody knows where the request ends.
  bool RefuseAndClose(int status, const std::string& message) {
    misframed = true;
    return Refuse(status, message);
  }

  struct Refusal {
    int status = 0;
    HttpHeaders headers = {};
    std::string body = {};
  };

  http::request_parser<http::string_body> parser;
  std::shared_ptr<HttpRequest> request = std::make_shared<HttpRequest>();
  const Endpoint* endpoint = nullptr;
  std::optional<Refusal> refusal;
  ClientCall::Deadline deadline;
  uint64_t body_limit = 0;
  Clock::time_point begun{};
  bool keep_alive = false;
  bool misframed = false;
  bool head_only = false;  // the client asked with HEAD
  bool http10 = false;
  bool chunked = false;  // how the body of the answer is framed
  std::string path;      // of the endpoint that was meant
  std::string asked;     // the target, where the header did not become whole
  std::string id = NewRequestId();
  std::string text;  // of the header
};

Connection::Connection(HttpShared& shared, std::unique_ptr<Transport> transport, const asio::any_io_executor& executor,
                       std::string peer)
    : shared_(shared),
      transport_(std::move(transport)),
      executor_(executor),
      peer_(std::move(peer)),
      arrived_(executor),
      room_(executor),
      ready_(executor) {}

Connection::~Connection() { Close(); }

void Connection::Start() {
  deadline_ = Clock::now() + shared_.limits.header;  // a new client has something to say
  const auto self = shared_from_this();
  asio::co_spawn(
      executor_, [self]() -> Awaitable<void> { co_await self->ReadAll(); }, asio::detached);
  asio::co_spawn(
      executor_, [self]() -> Awaitable<void> { co_await self->ServeAll(); }, asio::detached);
}

void Connection::Close() {
  if (!open_) return;
  open_ = false;
  transport_->Close();
  if (response_ != nullptr) response_->Close();
  arrived_.Notify();
  room_.Notify();
  ready_.Notify();
}

void Connection::Tick(Clock::time_point now) {
  if (!open_) return;
  if (now >= deadline_ && !timed_out_) {
    timed_out_ = true;
    arrived_.Notify();
  }
  if (response_ != nullptr) response_->Tick(now);
}

void Connection::Drain() {
  if (idle_ && input_.size() == 0) Close();
}

Connection::Awaitable<bool> Connection::Open() {
  std::string why;
  Opening opening = co_await transport_->Open(why);
  if (opening == Opening::kDone) co_return open_;
  if (timed_out_) opening = Opening::kTooSlow;
  shared_.metrics.CountHandshake(opening);
  if (opening != Opening::kTooSlow) LogInfo("HTTP: no TLS with {}: {}", peer_, why);
  Close();
  co_return false;
}

Connection::Awaitable<void> Connection::ReadAll() {
  if (!co_await Open()) co_return;
  while (open_) {
    if (input_.size() >= kInputBytes) {
      co_await room_.Wait();
      continue;
    }
    error_code error;
    const size_t bytes = co_await transport_->Read(asio::buffer(arriving_), error);
    if (!open_) co_return;
    if (error) {
      ended_ = true;
      // Whoever sends no more does not wait for the answer, either: that is how clients leave.
      if (response_ != nullptr) Close();
      arrived_.Notify();
      co_return;
    }
    shared_.metrics.received_bytes.Increment(static_cast<double>(bytes));
    last_input_ = Clock::now();
    input_.commit(asio::buffer_copy(input_.prepare(bytes), asio::buffer(arriving_, bytes)));
    arrived_.Notify();
  }
}

// False: nothing more will come, or not in time.
Connection::Awaitable<bool> Connection::MoreInput() {
  const size_t before = input_.size();
  while (open_ && !ended_ && !timed_out_ && input_.size() == before) co_await arrived_.Wait();
  co_return open_&& input_.size() > before;
}

Connection::Awaitable<void> Connection::ServeAll() {
  try {
    while (open_ && co_await ServeOne()) {
    }
  } catch (const std::exception& error) {
    LogWarning("a client's HTTP connection: {}", error.what());
  }
  Close();
}

// Whether the connection may serve another request.
Connection::Awaitable<bool> Connection::ServeOne() {
  Exchange exchange(shared_.limits);
  const bool whole = co_await ReadHeader(exchange) && Admit(exchange) && co_await ReadBody(exchange);
  deadline_ = Clock::time_point::max();
  if (exchange.refusal) co_return co_await AnswerRefusal(exchange);
  if (!whole || ended_) co_return false;
  Dispatch(exchange);
  co_return co_await Answer(exchange);
}

Connection::Awaitable<bool> Connection::ReadHeader(Exchange& exchange) {
  idle_ = true;
  unused_since_ = Clock::now();
  const auto first = [&] { return std::string_view(static_cast<const char*>(input_.data().data()), input_.size()); };
  bool skipped = false;
  while (true) {
    while (input_.size() == 0) {
      if (shared_.draining || !co_await MoreInput()) co_return false;
    }
    // Some clients end a body with an empty line, which belongs to nothing (RFC 9112 2.2).
    if (skipped || first()[0] != '\r') break;
    if (input_.size() == 1 && !co_await MoreInput()) co_return false;
    if (!first().starts_with("\r\n")) break;
    input_.consume(2);
    room_.Notify();
    skipped = true;
  }
  idle_ = false;
  exchange.begun = Clock::now();
  deadline_ = exchange.begun + shared_.limits.header;
  while (!exchange.parser.is_header_done()) {
    error_code error;
    const size_t bytes = exchange.parser.put(input_.data(), error);
    exchange.text.append(static_cast<const char*>(input_.data().data()), bytes);
    input_.consume(bytes);
    room_.Notify();
    if (error == http::error::need_more && co_await MoreInput()) continue;
    if (error) exchange.asked = std::string(TargetOf(first()));
    if (error == http::error::need_more) {
      co_return timed_out_&& exchange.Refuse(408, "the header did not arrive in time");
    }
    if (error == http::error::header_limit) {
      co_return exchange.Refuse(431, absl::StrCat("the header has more than ", shared_.limits.header_bytes, " bytes"));
    }
    if (error) co_return exchange.Refuse(400, absl::StrCat("not HTTP/1.1: ", error.message()));
  }
  co_return true;
}

// Takes the header in, and decides by it alone whether the request is let in.
bool Connection::Admit(Exchange& exchange) {
  const auto& message = exchange.parser.get();
  RequestHead& head = exchange.request->head;
  head.method = std::string(message.method_string());
  head.peer = peer_;
  for (const auto& field : message) {
    head.headers.try_emplace(absl::AsciiStrToLower(std::string(field.name_string())), field.value());
  }
  if (const std::string_view id = head.header("x-request-id"); IsRequestId(id)) exchange.id = std::string(id);
  exchange.keep_alive = message.keep_alive();
  exchange.head_only = head.method == "HEAD";
  exchange.http10 = message.version() < 11;
  if (const auto error = CheckFraming(message, exchange.text)) {
    return exchange.RefuseAndClose(error->status, error->message);
  }
  if (const absl::Status caller = CheckCaller(shared_.callers, head.header("host"), head.header("origin"));
      !caller.ok()) {
    return exchange.Refuse(caller);
  }
  const std::string target(WithoutServer({message.target().data(), message.target().size()}));
  const size_t query = std::min(target.find('?'), target.size());
  const std::optional<std::string> path = Unescape(std::string_view(target).substr(0, query));
  if (!path || !path->starts_with('/')) return exchange.Refuse(400, "the target must be a path, such as /v1/models");
  head.path = *path;
  head.query = target.substr(std::min(query + 1, target.size()));
  const Endpoints::Found found = shared_.endpoints.Find(head);
  exchange.path = found.path;
  if (found.path.empty()) {
    const std::string nearest = shared_.endpoints.Nearest(head.path);
    return exchange.Refuse(404, absl::StrCat("there is nothing at ", head.path,
                                             nearest.empty() ? "" : "; the nearest that is here is ", nearest));
  }
  head.path = found.target;
  const std::string allow = found.allowed + ", OPTIONS";
  if (head.method == "OPTIONS") {
    HttpHeaders headers{{"Allow", allow}};
    if (!shared_.callers.cors_origin.empty()) {
      headers["Access-Control-Allow-Methods"] = found.allowed;
      headers["Access-Control-Allow-Headers"] = "*, Authorization";  // the star does not stand for the second
      headers["Access-Control-Max-Age"] = "86400";
    }
    exchange.refusal = Exchange::Refusal{.status = 204, .headers = std::move(headers)};
    return false;
  }
  if (found.endpoint == nullptr) {
    return exchange.Refuse(405, absl::StrCat(head.path, " takes ", found.allowed, " only"), {{"Allow", allow}});
  }
  if (shared_.draining) return exchange.Refuse(503, "the server is shutting down");
  const std::string_view expect = head.header("expect");
  if (!expect.empty() && !absl::EqualsIgnoreCase(std::string(expect), "100-continue")) {
    return exchange.Refuse(417, "Expect: only 100-continue is supported");
  }
  if (const std::string_view coding = head.header("content-encoding");
      !coding.empty() && !absl::EqualsIgnoreCase(std::string(coding), "identity")) {
    return exchange.Refuse(415, "Content-Encoding: send the body as it is", {{"Accept-Encoding", "identity"}});
  }
  if (const std::string_view timeout = head.header("x-request-timeout"); !timeout.empty()) {
    const std::optional<ClientCall::Deadline> deadline = DeadlineOf(timeout);
    if (!deadline) return exchange.Refuse(400, "X-Request-Timeout: must be a number of seconds above 0");
    exchange.deadline = *deadline;
  }
  if (found.endpoint->admit) {
    auto tenant =
        found.endpoint->admit({.authorization = head.header("authorization"), .api_key = head.header("x-api-key")});
    if (!tenant.ok()) return exchange.Refuse(tenant.status());
    exchange.request->tenant = *std::move(tenant);
    had_key_ |= !shared_.callers.keyless;
  }
  exchange.endpoint = found.endpoint;
  exchange.body_limit = found.endpoint->body_bytes.value_or(shared_.limits.body_bytes);
  if (const auto length = exchange.parser.content_length(); length && *length > exchange.body_limit) {
    return exchange.Refuse(413, TooLarge(exchange.body_limit));
  }
  exchange.parser.body_limit(exchange.body_limit);
  unused_since_ = std::nullopt;
  return true;
}

Connection::Awaitable<bool> Connection::ReadBody(Exchange& exchange) {
  if (exchange.parser.is_done()) co_return true;
  if (!exchange.request->head.header("expect").empty() && input_.size() == 0) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    const std::vector<asio::const_buffer> buffers{asio::buffer(kContinue)};
    error_code error;
    co_await transport_->Write(buffers, error);
    if (error) co_return false;
  }
  deadline_ = Clock::now() + shared_.limits.body;
  exchange.parser.eager(true);
  RequestBody& body = exchange.request->body;
  const bool is_upload = exchange.endpoint->body_bytes.has_value();
  const uint64_t most = is_upload ? shared_.limits.all_uploads_bytes : shared_.limits.all_bodies_bytes;
  body = RequestBody(is_upload ? shared_.uploads : shared_.bodies);
  uint64_t counted = 0;
  while (!exchange.parser.is_done()) {
    if (input_.size() > 0) {
      error_code error;
      const size_t bytes = exchange.parser.put(input_.data(), error);
      const std::string_view taken(static_cast<const char*>(input_.data().data()), bytes);
      if (exchange.parser.is_done() && exchange.parser.chunked()) {
        if (const auto wrong = CheckTrailer(taken)) co_return exchange.RefuseAndClose(wrong->status, wrong->message);
      }
      input_.consume(bytes);
      room_.Notify();
      if (error == http::error::body_limit) co_return exchange.Refuse(413, TooLarge(exchange.body_limit));
      if (error && error != http::error::need_more) {
        co_return exchange.Refuse(400, absl::StrCat("not HTTP/1.1: ", error.message()));
      }
      const uint64_t size = exchange.parser.get().body().size();
      const uint64_t all = body.Count(size - std::exchange(counted, size));
      if (all > most) {
        co_return exchange.Refuse(503, "too many large requests arrive at once; try again later");
      }
      if (bytes > 0) continue;
      if (input_.size() >= kInputBytes) {
        co_return exchange.Refuse(400, "not HTTP/1.1: the extension or trailer of a chunk is too long");
      }
    }
    if (exchange.parser.is_done()) break;
    if (co_await MoreInput()) continue;
    co_return timed_out_&& exchange.Refuse(408, "the body did not arrive in time");
  }
  body.text = std::move(exchange.parser.get().body());
  if (!is_upload) text::ReplaceLoneSurrogates(body.text);  // a file stays as it is
  co_return true;
}

std::string Connection::TooLarge(uint64_t limit) { return absl::StrCat("the body has more than ", limit, " bytes"); }

std::shared_ptr<Response> Connection::NewResponse(const Exchange& exchange) {
  const std::weak_ptr<Connection> weak = weak_from_this();
  return std::make_shared<Response>(
      shared_.slow_clients,
      [weak, executor = executor_] {
        asio::post(executor, [weak] {
          if (const auto self = weak.lock()) self->ready_.Notify();
        });
      },
      [weak, executor = executor_] {
        asio::post(executor, [weak] {
          if (const auto self = weak.lock()) self->Close();
        });
      },
      exchange.id, exchange.deadline);
}

void Connection::Dispatch(Exchange& exchange) {
  response_ = NewResponse(exchange);
  response_->call().SetTenant(exchange.request->tenant);
  response_->call().SetBytes(exchange.request->body.text.size());
  // Of requests that a client sends ahead, not the time in which the one before ran.
  response_->call().times().SetReceived(std::max(last_input_, exchange.begun));
  const auto fail = [](const Endpoint& endpoint, const absl::Status& status, Response& response) {
    const HttpError error = ErrorAt(endpoint.path, status, response.request_id());
    response.Send(error.status, HeadersOf(error), error.body).IgnoreError();
  };
  const auto run = [fail, endpoint = exchange.endpoint, request = exchange.request, response = response_] {
    const absl::Status status = CatchExceptions([&] { return endpoint->handle(*request, *response); });
    if (!status.ok() && !response->begun()) fail(*endpoint, status, *response);
    response->End();
  };
  if (exchange.endpoint->where == Endpoint::Where::kEventLoop) return run();
  if (shared_.workers.Run(run)) return;
  fail(*exchange.endpoint, absl::ResourceExhaustedError("all workers are busy; try again later"), *response_);
}

// Writes the answer. False if the connection must end after it.
Connection::Awaitable<bool> Connection::Answer(Exchange& exchange) {
  const std::shared_ptr<Response> response = response_;
  std::optional<GaugeHold> stream;
  int status = 0;
  bool complete = false;
  while (open_ && !complete) {
    Response::Ready ready = response->Take();
    if (ready.empty()) {
      co_await ready_.Wait();
      continue;
    }
    std::string head;
    std::vector<asio::const_buffer> buffers;
    if (ready.head) {
      exchange.chunked = !ready.head->length && !exchange.http10;
      const bool is_extra = shared_.crowded && !had_key_;
      if ((!ready.head->length && exchange.http10) || shared_.draining || is_extra) exchange.keep_alive = false;
      head = AnswerHead(*ready.head,
                        {.request_id = exchange.id, .chunked = exchange.chunked, .keep_alive = exchange.keep_alive},
                        shared_.callers);
      status = ready.head->status;
      if (!ready.head->length) stream.emplace(shared_.metrics.streams);
    }
    // All pieces that wait make one chunk.
    if (exchange.chunked && !exchange.head_only && !ready.pieces.empty()) {
      absl::StrAppend(&head, absl::Hex(ready.bytes), "\r\n");
    }
    if (!head.empty()) buffers.push_back(asio::buffer(head));
    for (const std::string& piece : ready.pieces) {
      if (!exchange.head_only) buffers.push_back(asio::buffer(piece));
    }
    static constexpr std::string_view kChunkEnd = "\r\n";
    static constexpr std::string_view kBodyEnd = "0\r\n\r\n";
    if (exchange.chunked && !exchange.head_only) {
      if (!ready.pieces.empty()) buffers.push_back(asio::buffer(kChunkEnd));
      if (ready.complete) buffers.push_back(asio::buffer(kBodyEnd));
    }
    error_code error;
    if (!buffers.empty()) {
      response->BeginWrite();
      co_await transport_->Write(buffers, error);
      if (!error) shared_.metrics.sent_bytes.Increment(static_cast<double>(asio::buffer_size(buffers)));
      if (stream && ready.token_came) Observe(shared_.metrics.token_overhead, Clock::now() - *ready.token_came);
    }
    response->EndWrite(ready.bytes);
    if (error) Close();
    complete = ready.complete;
  }
  shared_.metrics.CountRequest(exchange.path, open_ ? status : 0);
  // Probes and pages come every second, and say nothing that is not known.
  if (status >= 400 || (exchange.request->head.method == "POST" && exchange.endpoint != nullptr)) {
    LogInfo("[{}] HTTP: {} {}: {}", exchange.id, exchange.endpoint == nullptr ? "?" : exchange.endpoint->method,
            exchange.path.empty() ? "?" : exchange.path, open_ ? status : 0);
  }
  if (const auto asked = response->call().times().asked_after()) Observe(shared_.metrics.request_overhead, *asked);
  response_ = nullptr;
  if (!open_) co_return false;
  deadline_ = Clock::now() + shared_.limits.idle;
  co_return exchange.keep_alive && !shared_.draining;
}

Connection::Awaitable<bool> Connection::AnswerRefusal(Exchange& exchange) {
  // What follows of the request is not read.
  const bool whole = exchange.parser.is_done() && !exchange.misframed;
  if (!whole) exchange.keep_alive = false;
  timed_out_ = false;
  response_ = NewResponse(exchange);
  Exchange::Refusal& refusal = *exchange.refusal;
  response_->Send(refusal.status, std::move(refusal.headers), std::move(refusal.body)).IgnoreError();
  const bool again = co_await Answer(exchange);
  if (!whole) co_await Linger();
  co_return again&& whole;
}

// Reads what the client still sends: if it were left unread, the client's kernel would drop the answer.
Connection::Awaitable<void> Connection::Linger() {
  if (!open_) co_return;
  transport_->ShutdownSend();
  deadline_ = Clock::now() + shared_.limits.linger;
  size_t bytes = 0;
  while (bytes < kLingerBytes) {
    bytes += input_.size();
    input_.consume(input_.size());
    room_.Notify();
    if (!co_await MoreInput()) co_return;
  }
}

}  // namespace moestro::router
