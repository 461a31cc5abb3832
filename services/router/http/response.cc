#include "services/router/http/response.h"

#include <utility>

#include "services/router/access/tenant.h"

namespace moestro::router {
namespace {

absl::Status Gone() { return absl::CancelledError("the client went away"); }

}  // namespace

const std::string& Response::tenant_name() const { return call_.tenant()->name(); }

absl::Status Response::PushLocked(std::string piece) {
  if (!open_) return Gone();
  last_ = std::chrono::steady_clock::now();
  if (piece.empty()) return absl::OkStatus();
  if (const absl::Status room = client_.Enqueue(piece.size()); !room.ok()) {
    open_ = false;
    taken_.notify_all();
    return room;
  }
  const auto token_came = call_.times().TakeToken();
  if (pieces_.empty()) token_came_ = token_came;
  bytes_ += piece.size();
  untaken_ += piece.size();
  pieces_.push_back(std::move(piece));
  return absl::OkStatus();
}

void Response::AddHeader(const std::string& name, std::string value) {
  MutexLock lock(mutex_);
  headers_[name] = std::move(value);
}

absl::Status Response::Send(int status, HttpHeaders headers, std::string body) {
  absl::Status pushed;
  {
    MutexLock lock(mutex_);
    begun_ = true;
    headers.merge(headers_);
    head_ = ResponseHead{.status = status, .headers = std::move(headers), .length = body.size()};
    pushed = PushLocked(std::move(body));
    complete_ = true;
  }
  wake_();
  return pushed;
}

absl::Status Response::Begin(HttpHeaders headers, std::string idle, std::chrono::seconds idle_after) {
  {
    MutexLock lock(mutex_);
    if (!open_) return Gone();
    begun_ = true;
    headers.merge(headers_);
    head_ = ResponseHead{.status = 200, .headers = std::move(headers)};
    idle_ = std::move(idle);
    idle_after_ = idle_after;
    last_ = std::chrono::steady_clock::now();
  }
  wake_();
  return absl::OkStatus();
}

absl::Status Response::Write(std::string piece) {
  absl::Status pushed;
  {
    MutexLock lock(mutex_);
    pushed = PushLocked(std::move(piece));
  }
  wake_();
  return pushed;
}

void Response::End() {
  {
    MutexLock lock(mutex_);
    complete_ = true;
  }
  wake_();
}

bool Response::begun() const {
  MutexLock lock(mutex_);
  return begun_;
}

Response::Ready Response::Take() {
  MutexLock lock(mutex_);
  return {.head = std::exchange(head_, std::nullopt),
          .pieces = std::exchange(pieces_, {}),
          .bytes = std::exchange(bytes_, 0),
          .complete = complete_,
          .token_came = std::exchange(token_came_, std::nullopt)};
}

absl::Status Response::WaitUntilTaken() {
  MutexLock lock(mutex_);
  while (open_ && untaken_ > 0) taken_.wait(lock);
  return open_ ? absl::OkStatus() : Gone();
}

void Response::EndWrite(size_t bytes) {
  client_.EndWrite();
  client_.Dequeue(bytes);
  MutexLock lock(mutex_);
  untaken_ -= bytes;
  taken_.notify_all();
}

void Response::Close() {
  call_.Cancel();
  MutexLock lock(mutex_);
  open_ = false;
  taken_.notify_all();
  pieces_.clear();
  untaken_ -= bytes_;
  client_.Dequeue(std::exchange(bytes_, 0));
}

void Response::Tick(std::chrono::steady_clock::time_point now) {
  {
    MutexLock lock(mutex_);
    if (idle_.empty() || complete_ || now - last_ < idle_after_) return;
    if (!PushLocked(idle_).ok()) return;
  }
  wake_();
}

}  // namespace moestro::router
