// What clients that read slowly, or not at all, may cost: memory for the replies that wait for them, and time without
// any progress. Thread-safe.
#pragma once

#include <prometheus/counter.h>

#include <cstddef>
#include <functional>
#include <list>
#include <optional>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/router/admission/clock.h"

namespace moestro {

struct SlowClientLimits {
  Clock::Duration stall = std::chrono::seconds(30);  // the longest that a client may take for one reply
  // Of replies that wait. A generation's are small; the scores of a long text with many alternatives are not, and come
  // as fast as prefill computes.
  size_t call_bytes = size_t{256} << 20;
  size_t process_bytes = size_t{1} << 30;
};

class SlowClients {
 public:
  // `stalled` counts calls that were cancelled, `behind` those that were refused more memory. All must outlive this
  // object.
  SlowClients(const SlowClientLimits& limits, Clock& clock, prometheus::Counter& stalled, prometheus::Counter& behind);

  // One client's replies. `cancel` ends its call, and so the write under way; it must not block.
  class Stream {
   public:
    Stream(SlowClients& clients, std::function<void()> cancel);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // A reply of `bytes` is to wait for its turn. RESOURCE_EXHAUSTED: too much waits already, for this client or all.
    absl::Status Enqueue(size_t bytes);
    void Dequeue(size_t bytes);
    void BeginWrite();
    void EndWrite();

   private:
    friend class SlowClients;
    SlowClients& clients_;
    const std::function<void()> cancel_;
    size_t bytes_ ABSL_GUARDED_BY(clients_.mutex_) = 0;
    std::optional<Clock::TimePoint> writing_since_ ABSL_GUARDED_BY(clients_.mutex_);
    std::list<Stream*>::iterator place_ ABSL_GUARDED_BY(clients_.mutex_);
  };

  // Cancels the calls whose client has taken nothing for `stall`. To be called about once a second.
  void CancelStalled();

 private:
  const SlowClientLimits limits_;
  Clock& clock_;
  prometheus::Counter& stalled_;
  prometheus::Counter& behind_;
  Mutex mutex_;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Stream*> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro
