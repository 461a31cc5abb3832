// Bounds on clients that read slowly or not at all: memory for the replies that wait, and time without progress.
// Thread-safe.
#pragma once

#include <prometheus/counter.h>

#include <cstddef>
#include <functional>
#include <list>
#include <optional>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/router/admission/clock.h"

namespace moestro::router {

struct SlowClientLimits {
  RequestClock::Duration stall = std::chrono::seconds(30);  // the longest time that a client may take for one reply
  // Memory for waiting replies. A generation's are small. The scores of a long text with many alternatives are large,
  // and arrive as fast as prefill computes.
  size_t call_bytes = size_t{256} << 20;
  size_t process_bytes = size_t{1} << 30;
};

class SlowClients {
 public:
  // `stalled` counts calls that were cancelled, `behind` calls whose replies exceeded the memory. All arguments must
  // outlive this object.
  SlowClients(const SlowClientLimits& limits, RequestClock& clock, prometheus::Counter& stalled,
              prometheus::Counter& behind);

  // The replies to one client. `cancel` ends its call, and so the write in progress; it must not block.
  class Stream {
   public:
    Stream(SlowClients& clients, std::function<void()> cancel);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // Queues a reply of `bytes`. RESOURCE_EXHAUSTED: too much waits already for this client or for all clients.
    absl::Status Enqueue(size_t bytes);
    void Dequeue(size_t bytes);
    void BeginWrite();
    void EndWrite();

   private:
    friend class SlowClients;
    SlowClients& clients_;
    const std::function<void()> cancel_;
    size_t bytes_ ABSL_GUARDED_BY(clients_.mutex_) = 0;
    std::optional<RequestClock::TimePoint> writing_since_ ABSL_GUARDED_BY(clients_.mutex_);
    std::list<Stream*>::iterator place_ ABSL_GUARDED_BY(clients_.mutex_);
  };

  // Cancels the calls whose client has taken nothing for `stall`. Call it about once a second.
  void CancelStalled();

 private:
  const SlowClientLimits limits_;
  RequestClock& clock_;
  prometheus::Counter& stalled_;
  prometheus::Counter& behind_;
  Mutex mutex_;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Stream*> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::router
