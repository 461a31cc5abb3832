#include "services/router/rpc/slow_clients.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/telemetry/log.h"

namespace moestro::router {

SlowClients::SlowClients(const SlowClientLimits& limits, RequestClock& clock, prometheus::Counter& stalled,
                         prometheus::Counter& behind)
    : limits_(limits), clock_(clock), stalled_(stalled), behind_(behind) {}

SlowClients::Stream::Stream(SlowClients& clients, std::function<void()> cancel)
    : clients_(clients), cancel_(std::move(cancel)) {
  MutexLock lock(clients_.mutex_);
  place_ = clients_.streams_.insert(clients_.streams_.end(), this);
}

SlowClients::Stream::~Stream() {
  MutexLock lock(clients_.mutex_);
  clients_.bytes_ -= bytes_;
  clients_.streams_.erase(place_);
}

absl::Status SlowClients::Stream::Enqueue(size_t bytes) {
  MutexLock lock(clients_.mutex_);
  const SlowClientLimits& limits = clients_.limits_;
  const bool call_fits = bytes <= limits.call_bytes - std::min(bytes_, limits.call_bytes);
  const bool all_fit = bytes <= limits.process_bytes - std::min(clients_.bytes_, limits.process_bytes);
  if (!call_fits || !all_fit) {
    clients_.behind_.Increment();
    return absl::ResourceExhaustedError(absl::StrCat("the client reads too slowly: ", bytes_,
                                                     " bytes of replies wait for it, ", clients_.bytes_,
                                                     " for all clients; read faster, or ask for less"));
  }
  bytes_ += bytes;
  clients_.bytes_ += bytes;
  return absl::OkStatus();
}

void SlowClients::Stream::Dequeue(size_t bytes) {
  MutexLock lock(clients_.mutex_);
  bytes_ -= bytes;
  clients_.bytes_ -= bytes;
}

void SlowClients::Stream::BeginWrite() {
  MutexLock lock(clients_.mutex_);
  writing_since_ = clients_.clock_.Now();
}

void SlowClients::Stream::EndWrite() {
  MutexLock lock(clients_.mutex_);
  writing_since_.reset();
}

void SlowClients::CancelStalled() {
  MutexLock lock(mutex_);
  const RequestClock::TimePoint now = clock_.Now();
  for (Stream* stream : streams_) {
    stream->clients_.mutex_.AssertHeld();
    if (!stream->writing_since_ || now - *stream->writing_since_ < limits_.stall) continue;
    LogWarning("a client has read nothing for {:.0f} s (--write-stall-seconds): cancelling its call",
               Seconds(limits_.stall));
    stalled_.Increment();
    stream->writing_since_.reset();  // once
    stream->cancel_();
  }
}

}  // namespace moestro::router
