// Exchanges of a rank beside what its device computes: a thread of their own does one after the other, on a stream of
// its own. Whoever launches the rank's kernels starts an exchange as soon as what it sends has been launched, launches
// what does not need it, and waits for it before the rest. All ranks start the same exchanges in the same order.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/collective/communicator.h"
#include "common/device/device.h"
#include "services/prefill/stream/timeline.h"

namespace moestro::prefill {

class Exchanges {  // of one rank, one run at a time; one thread calls it
 public:
  // Both outlive it.
  Exchanges(device::Device& device, collective::Communicator& communicator)
      : device_(device), communicator_(communicator) {}
  ~Exchanges() { End(); }
  Exchanges(const Exchanges&) = delete;
  Exchanges& operator=(const Exchanges&) = delete;

  absl::Status Begin();
  // Gives up what is not done. Nothing of it uses any memory afterwards.
  void End();

  // `what`: a literal, for the timeline. `after`: recorded, and not recorded again before the exchange is waited for;
  // the exchange begins when it has completed. null: at once.
  struct Exchange {
    const char* what = "";
    int64_t layer = 0;
    device::Event* after = nullptr;
    // Returns when its part of the exchange is done.
    std::function<absl::Status(const collective::Call& call)> work;
  };
  // The number of the exchange, from 0.
  int64_t Start(Exchange exchange);
  // Returns when the exchange, and all before it, are done: what is launched then finds what was received. `compute`:
  // the stream that has everything on it that need not wait. An error is that of an exchange, or CANCELLED when
  // `stopped`.
  absl::Status WaitFor(int64_t exchange, device::Stream& compute, const std::atomic<bool>& stopped);

  // Of a run that has ended. `spans`: each exchange, while it was under way. `waits`: while the compute stream had
  // nothing to do because of it.
  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<Span>& waits() const { return waits_; }

 private:
  struct Queued {
    Exchange exchange;
    double asked = 0;  // when it was started
  };
  // Of WaitFor: from the end of what had been launched before to the end of the exchange.
  struct Wait {
    Span span;
    std::unique_ptr<device::Event> launched;
  };

  void Run();
  absl::Status Do(const Queued& queued, Span& span);
  // By the communicator, so far.
  int64_t ExchangedBytes() const;

  device::Device& device_;
  collective::Communicator& communicator_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<Wait> open_waits_;
  std::vector<Span> spans_;
  std::vector<Span> waits_;
  std::atomic<bool> stopped_ = false;

  Mutex mutex_;
  Condition changed_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Span> done_ ABSL_GUARDED_BY(mutex_);  // in their order
  absl::Status status_ ABSL_GUARDED_BY(mutex_);     // the first failure: nothing is done after it

  std::thread thread_;
};

}  // namespace moestro::prefill
