// The answer to one HTTP request. Any thread makes it, without waiting for the client to read; the connection's event
// loop takes what is ready and writes it.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/router/rpc/client_call.h"
#include "services/router/rpc/slow_clients.h"

namespace moestro::router {

using HttpHeaders = std::map<std::string, std::string>;

struct ResponseHead {
  int status = 200;
  HttpHeaders headers = {};
  std::optional<size_t> length = std::nullopt;  // of the body; nullopt: it comes in pieces
};

// Thread-safe. One thread at a time makes the answer.
class Response {
 public:
  // `request_id`: as its headers have it; empty: of a request that came over no connection.
  // `wake` is called when something new is ready, on any thread. `abort` ends the connection: the client reads too
  // slowly. Neither may block, and both may be called after the connection has gone. `clients` must outlive this.
  Response(SlowClients& clients, std::function<void()> wake, std::function<void()> abort, std::string request_id = {},
           ClientCall::Deadline deadline = std::nullopt)
      : request_id_(std::move(request_id)),
        call_(deadline),
        client_(clients, std::move(abort)),
        wake_(std::move(wake)) {}
  Response(const Response&) = delete;
  Response& operator=(const Response&) = delete;

  // A header of the answer, beside those of Send or Begin. Without effect once the answer has begun.
  void AddHeader(const std::string& name, std::string value);

  // The whole answer at once.
  absl::Status Send(int status, HttpHeaders headers, std::string body);
  absl::Status SendJson(int status, std::string body) {
    return Send(status, {{"Content-Type", "application/json"}}, std::move(body));
  }

  // An answer in pieces: Begin, any number of Write, End. CANCELLED once the client is gone; RESOURCE_EXHAUSTED when
  // too much waits for it. `idle`: what to write whenever nothing was written for `idle_after`; empty: nothing.
  absl::Status Begin(HttpHeaders headers, std::string idle = {}, std::chrono::seconds idle_after = {});
  absl::Status Write(std::string piece);
  void End();
  // Waits until the client has taken what was written, for answers of any length. CANCELLED once the client is gone.
  absl::Status WaitUntilTaken();

  bool begun() const;
  const std::string& request_id() const { return request_id_; }

  // What the calls to roles on behalf of this request inherit.
  ClientCall& call() { return call_; }
  // Of whoever sent the request; known once its key has been checked.
  const std::string& tenant_name() const;

  // For the connection. -------------------------------------------------------------------------------------------

  struct Ready {
    std::optional<ResponseHead> head;
    std::vector<std::string> pieces;
    size_t bytes = 0;
    bool complete = false;  // nothing follows
    // When the token came that led to the first piece.
    std::optional<CallTimes::Clock::time_point> token_came = std::nullopt;
    bool empty() const { return !head && pieces.empty() && !complete; }
  };
  Ready Take();
  void BeginWrite() { client_.BeginWrite(); }
  void EndWrite(size_t bytes);
  // The client is gone: drops what waits, and cancels the call.
  void Close();
  // Called about once a second.
  void Tick(std::chrono::steady_clock::time_point now);

 private:
  absl::Status PushLocked(std::string piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string request_id_;
  ClientCall call_;
  mutable Mutex mutex_;
  SlowClients::Stream client_;
  const std::function<void()> wake_;
  HttpHeaders headers_ ABSL_GUARDED_BY(mutex_);  // that were added
  std::optional<ResponseHead> head_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> pieces_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;    // of the pieces
  size_t untaken_ ABSL_GUARDED_BY(mutex_) = 0;  // of these, and of those that are being written
  Condition taken_;
  std::optional<CallTimes::Clock::time_point> token_came_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  std::string idle_ ABSL_GUARDED_BY(mutex_);
  std::chrono::seconds idle_after_ ABSL_GUARDED_BY(mutex_){};
  std::chrono::steady_clock::time_point last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::router
