#include "services/prefill/distributed/exchanges.h"

#include <chrono>
#include <utility>

#include "common/base/exceptions.h"
#include "common/base/status.h"

namespace moestro::prefill {
namespace {

// How often a waiting thread looks whether the run has been given up.
constexpr std::chrono::milliseconds kStopPoll{10};

}  // namespace

absl::Status Exchanges::Begin() {
  MOE_ASSIGN_OR_RETURN(stream_, device_.NewStream("exchange"));
  stopped_ = false;
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Exchanges::End() {
  if (thread_.joinable()) {
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  stream_.reset();
  MutexLock lock(mutex_);
  spans_ = std::exchange(done_, {});
  waits_.clear();
  for (Wait& wait : open_waits_) {
    if (!wait.launched->Wait().ok()) continue;
    wait.span.begin = wait.launched->Seconds();
    if (wait.span.end > wait.span.begin) waits_.push_back(wait.span);
  }
  open_waits_.clear();
  queue_.clear();
  started_ = 0;
  status_ = absl::OkStatus();
}

int64_t Exchanges::Start(Exchange exchange) {
  const double now = device_.Now();
  MutexLock lock(mutex_);
  queue_.push_back({std::move(exchange), now});
  changed_.notify_all();
  return started_++;
}

absl::Status Exchanges::WaitFor(int64_t exchange, device::Stream& compute, const std::atomic<bool>& stopped) {
  Wait wait;
  MOE_ASSIGN_OR_RETURN(wait.launched, device_.NewEvent());
  MOE_RETURN_IF_ERROR(compute.Record(*wait.launched));
  {
    MutexLock lock(mutex_);
    const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !status_.ok() || std::ssize(done_) > exchange;
    };
    while (!changed_.wait_for(lock, kStopPoll, over)) {
      if (stopped) return absl::CancelledError("the run has been given up");
    }
    if (std::ssize(done_) <= exchange) return status_;
    wait.span = done_[static_cast<size_t>(exchange)];
  }
  device_.AdvanceTo(wait.span.end);
  open_waits_.push_back(std::move(wait));
  return absl::OkStatus();
}

void Exchanges::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (queue_.empty() && !stopped_) changed_.wait(lock);
    if (stopped_) return;
    const Queued queued = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Span span;
    const absl::Status status = CatchExceptions([&] { return Do(queued, span); });
    lock.lock();
    if (status.ok()) {
      done_.push_back(span);
    } else {
      status_ = status;
    }
    changed_.notify_all();
    if (!status.ok()) return;
  }
}

absl::Status Exchanges::Do(const Queued& queued, Span& span) {
  const Exchange& exchange = queued.exchange;
  device_.AdvanceTo(queued.asked);
  if (exchange.after != nullptr) MOE_RETURN_IF_ERROR(exchange.after->Wait());
  const int64_t before = ExchangedBytes();
  span = {.name = exchange.what, .layer = exchange.layer, .begin = device_.Now()};
  MOE_RETURN_IF_ERROR(exchange.work({*stream_, stopped_}));
  MOE_RETURN_IF_ERROR(stream_->Synchronize());
  span.bytes = ExchangedBytes() - before;
  span.end = device_.Now();
  return absl::OkStatus();
}

int64_t Exchanges::ExchangedBytes() const {
  int64_t bytes = 0;
  for (int i = 0; i < collective::kOperations; ++i) {
    const collective::OperationCounters& counters = communicator_.counters(static_cast<collective::Operation>(i));
    bytes += counters.sent_bytes + counters.received_bytes;
  }
  return bytes;
}

}  // namespace moestro::prefill
