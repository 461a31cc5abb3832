#include "services/router/admission/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "services/router/access/retry_after.h"

namespace moestro::router {
namespace {

// A line of hundreds of requests does not clear within a second, and a client that asks every few seconds costs
// nothing.
constexpr std::chrono::seconds kRetryWhenFull(5);

absl::Status Full(const std::string& message) {
  return WithRetryAfter(absl::ResourceExhaustedError(message), kRetryWhenFull);
}

}  // namespace

AdmissionQueue::Request::Request(AdmissionQueue& queue, std::shared_ptr<Tenant> tenant, uint32_t tokens, Kind kind)
    : queue_(queue), tenant_(std::move(tenant)), tokens_(tokens), kind_(kind), arrival_(queue.NextArrival()) {
  MOE_CHECK(tokens > 0);
}

AdmissionQueue::Request::~Request() { queue_.End(*this); }

void AdmissionQueue::Request::SetUsed(uint32_t tokens) {
  used_ = tokens;
  if (used_ <= tokens_) return;
  tokens_ += kAnswerPart;
  queue_.Charge(*this, kAnswerPart);
}

absl::StatusOr<AdmissionQueue::Request::Place> AdmissionQueue::Request::LineUp() {
  MOE_RETURN_IF_ERROR(queue_.Join(*this));
  return Place(*this);
}

uint64_t AdmissionQueue::Request::seniority() const {
  MutexLock lock(queue_.mutex_);
  MOE_CHECK(seniority_ > 0);
  return seniority_;
}

AdmissionQueue::Request::Place::Place(Place&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}

AdmissionQueue::Request::Place::~Place() {
  if (request_ != nullptr) request_->queue_.Leave(*request_);
}

bool AdmissionQueue::Request::Place::IsFirst() const { return request_->queue_.IsFirst(*request_); }

void AdmissionQueue::Request::Place::Wait(RequestClock& clock, RequestClock::Duration duration) const {
  request_->queue_.Wait(*request_, clock, duration);
}

void AdmissionQueue::Request::Place::Wake() const { request_->queue_.Wake(*request_); }

uint64_t AdmissionQueue::NextArrival() {
  MutexLock lock(mutex_);
  return ++last_arrival_;
}

absl::Status AdmissionQueue::Join(Request& request) {
  MutexLock lock(mutex_);
  request.queue_.mutex_.AssertHeld();
  if (request.seniority_ > 0) {
    MOE_CHECK(numbered_.emplace(request.seniority_, &request).second);
    return absl::OkStatus();
  }
  Line& line = lines_[request.tenant_->name()];
  const size_t all = waiting_ + numbered_.size();
  const size_t own = line.waiting.size();
  if (all >= limit_) {
    return Full(absl::StrCat("queue full: ", all, " requests are waiting (--queue-limit); try again later"));
  }
  const auto most = static_cast<size_t>(request.tenant_->limits().waiting.value_or(limit_));
  if (own >= most || (fair_ && own >= limit_ - all)) {
    request.tenant_->metrics().refused_waiting.Increment();
    return Full(absl::StrCat("key '", request.tenant_->name(), "': ", own,
                             " of its requests are waiting, as many as may (waiting, or the rest of the router's "
                             "--queue-limit); try again later"));
  }
  const bool is_back = line.waiting.empty() && line.admitted[0] + line.admitted[1] == 0;
  if (is_back) line.virtual_time = std::max(line.virtual_time, virtual_time_);
  MOE_CHECK(line.waiting.emplace(request.arrival_, &request).second);
  ++waiting_;
  return absl::OkStatus();
}

void AdmissionQueue::Leave(const Request& request) {
  MutexLock lock(mutex_);
  request.queue_.mutex_.AssertHeld();
  if (request.seniority_ > 0) {
    numbered_.erase(request.seniority_);
  } else {
    waiting_ -= lines_[request.tenant_->name()].waiting.erase(request.arrival_);
  }
  WakeNext();
}

void AdmissionQueue::Wait(Request& request, RequestClock& clock, RequestClock::Duration duration) {
  MutexLock lock(mutex_);
  request.queue_.mutex_.AssertHeld();
  clock.WaitFor(request.changed_, lock, duration, [&request] {
    request.queue_.mutex_.AssertHeld();
    return request.woken_;
  });
  request.woken_ = false;
}

void AdmissionQueue::WakeNext() {
  Request* next = nullptr;
  if (!numbered_.empty()) {
    next = numbered_.begin()->second;
  } else if (const Line* line = NextLine(); line != nullptr) {
    next = line->waiting.begin()->second;
  }
  if (next != nullptr) WakeLocked(*next);
}

void AdmissionQueue::Wake(Request& request) {
  MutexLock lock(mutex_);
  WakeLocked(request);
}

void AdmissionQueue::WakeLocked(Request& request) {
  request.queue_.mutex_.AssertHeld();
  request.woken_ = true;
  request.changed_.notify_one();
}

bool AdmissionQueue::IsFirst(Request& request) {
  MutexLock lock(mutex_);
  request.queue_.mutex_.AssertHeld();
  if (!numbered_.empty()) return numbered_.begin()->second == &request;
  Line* next = NextLine();
  if (next == nullptr || next->waiting.begin()->second != &request) return false;
  MakeHead(*next, request);
  return true;
}

void AdmissionQueue::End(const Request& request) {
  MutexLock lock(mutex_);
  request.queue_.mutex_.AssertHeld();
  if (request.seniority_ == 0) return;
  Line& line = lines_[request.tenant_->name()];
  const auto kind = static_cast<size_t>(request.kind_);
  --line.admitted[kind];
  --admitted_[kind];
  line.virtual_time -= (request.tokens_ - std::min(request.used_, request.tokens_)) / request.weight_;
  WakeNext();
}

void AdmissionQueue::Charge(const Request& request, uint32_t tokens) {
  MutexLock lock(mutex_);
  request.queue_.mutex_.AssertHeld();
  lines_[request.tenant_->name()].virtual_time += tokens / request.weight_;
}

bool AdmissionQueue::MayBeNext(const Line& line) const {
  if (line.waiting.empty()) return false;
  const Request& request = *line.waiting.begin()->second;
  const auto running = static_cast<int64_t>(line.admitted[0] + line.admitted[1]);
  if (running >= request.tenant_->limits().running.value_or(running + 1)) return false;
  if (!fair_ || places_ == 0) return true;
  const auto kind = static_cast<size_t>(request.kind_);
  const bool is_last = admitted_[kind] + 1 == places_;
  return admitted_[kind] < places_ && !(is_last && line.admitted[kind] > 0);
}

AdmissionQueue::Line* AdmissionQueue::NextLine() {
  Line* next = nullptr;
  const auto order = [](const Line& line) { return std::pair(line.virtual_time, line.waiting.begin()->first); };
  for (auto& [name, line] : lines_) {
    if (MayBeNext(line) && (next == nullptr || order(line) < order(*next))) next = &line;
  }
  return next;
}

void AdmissionQueue::MakeHead(Line& line, Request& head) {
  head.queue_.mutex_.AssertHeld();
  line.waiting.erase(line.waiting.begin());
  --waiting_;
  virtual_time_ = std::max(virtual_time_, line.virtual_time);
  head.weight_ = head.tenant_->weight();
  line.virtual_time += head.tokens_ / head.weight_;
  const auto kind = static_cast<size_t>(head.kind_);
  ++line.admitted[kind];
  ++admitted_[kind];
  head.seniority_ = ++last_seniority_;
  numbered_.emplace(head.seniority_, &head);
}

void AdmissionQueue::SetFair(bool fair) {
  MutexLock lock(mutex_);
  fair_ = fair;
  WakeNext();  // the limits of tenants may have changed, too
}

void AdmissionQueue::SetPlaces(size_t places) {
  MutexLock lock(mutex_);
  if (std::exchange(places_, places) != places) WakeNext();
}

size_t AdmissionQueue::size() const {
  MutexLock lock(mutex_);
  return waiting_ + numbered_.size();
}

void AdmissionQueue::CountReturn() {
  MutexLock lock(mutex_);
  ++returns_;
  WakeNext();
}

uint64_t AdmissionQueue::returns() const {
  MutexLock lock(mutex_);
  return returns_;
}

}  // namespace moestro::router
