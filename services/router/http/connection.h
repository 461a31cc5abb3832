// One client's connection: reads requests, one after the other, and writes the answers in that order. All of it runs on
// the event loop's thread.
#pragma once

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "services/router/http/callers.h"
#include "services/router/http/endpoints.h"
#include "services/router/http/http_metrics.h"
#include "services/router/http/signal.h"
#include "services/router/http/transport.h"
#include "services/router/http/worker_pool.h"
#include "services/router/rpc/slow_clients.h"

namespace moestro::router {

// What a client may make the router hold, and for how long.
struct HttpLimits {
  uint32_t header_bytes = 16 << 10;
  uint64_t body_bytes = 16 << 20;           // a text of a million tokens, as over gRPC
  uint64_t all_bodies_bytes = 256 << 20;    // of all clients together, until they are parsed
  uint64_t all_uploads_bytes = 256 << 20;   // the same, of endpoints with a bound of their own for a body
  std::chrono::milliseconds idle{300000};   // between two requests
  std::chrono::milliseconds header{10000};  // from the first byte of a request to the end of its header
  std::chrono::milliseconds body{60000};    // from there to the end of its body
  std::chrono::milliseconds linger{2000};   // a client may still send when its request was refused
};

// Shared by all connections; used by the event loop's thread.
struct HttpShared {
  const HttpLimits limits;
  const Endpoints& endpoints;
  WorkerPool& workers;
  SlowClients& slow_clients;
  HttpMetrics& metrics;
  const CallerRules callers;
  BodyBytes bodies = {};
  BodyBytes uploads = {};  // beside `bodies`: slow uploads of files must not keep out requests
  bool draining = false;
  bool crowded = false;  // what is left is for holders of keys
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpShared& shared, std::unique_ptr<Transport> transport, const boost::asio::any_io_executor& executor,
             std::string peer);
  ~Connection();

  void Start();
  // Called about four times a second: ends what takes too long, and keeps silent streams alive.
  void Tick(std::chrono::steady_clock::time_point now);
  // Ends the connection if no request is under way; otherwise when its answer is complete.
  void Drain();
  // Ends the connection now, and the request on every role.
  void Close();
  bool open() const { return open_; }
  // Since when the connection has no request that was let in; nullopt while it has one.
  std::optional<std::chrono::steady_clock::time_point> unused_since() const { return unused_since_; }
  // Whether a request on it had a key.
  bool had_key() const { return had_key_; }

 private:
  struct Exchange;
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;
  using Clock = std::chrono::steady_clock;

  Awaitable<bool> Open();
  Awaitable<void> ReadAll();
  Awaitable<void> ServeAll();
  Awaitable<bool> ServeOne();
  Awaitable<bool> ReadHeader(Exchange& exchange);
  bool Admit(Exchange& exchange);
  Awaitable<bool> ReadBody(Exchange& exchange);
  Awaitable<bool> MoreInput();
  Awaitable<bool> Answer(Exchange& exchange);
  Awaitable<bool> AnswerRefusal(Exchange& exchange);
  Awaitable<void> Linger();
  void Dispatch(Exchange& exchange);
  std::shared_ptr<Response> NewResponse(const Exchange& exchange);
  static std::string TooLarge(uint64_t limit);

  HttpShared& shared_;
  const std::unique_ptr<Transport> transport_;
  const boost::asio::any_io_executor executor_;
  const std::string peer_;
  std::array<char, 8 << 10> arriving_;  // apart from the rest, because what is read moves that
  boost::beast::flat_buffer input_;
  Signal arrived_;  // input, its end, or a time-out
  Signal room_;     // in the input buffer
  Signal ready_;    // something to write
  std::shared_ptr<Response> response_;
  Clock::time_point last_input_{};                         // when it arrived
  Clock::time_point deadline_ = Clock::time_point::max();  // of what the client is to do next
  std::optional<Clock::time_point> unused_since_ = Clock::now();
  bool had_key_ = false;
  bool open_ = true;
  bool ended_ = false;      // the client sends no more
  bool timed_out_ = false;  // what the deadline was for
  bool idle_ = true;        // between two requests
};

}  // namespace moestro::router
