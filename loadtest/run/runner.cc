#include "loadtest/run/runner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace moestro::loadtest {
namespace {

constexpr double kPollSeconds = 0.1;  // latency of an interrupt, and period of the progress line
constexpr double kDrainSeconds = 15;  // after an interrupt: wait for the cancelled requests to end
constexpr double kSoon = 1e-6;  // seconds: due. Times relative to the begin are rounded, and a clock may stand still

class Execution {
 public:
  Execution(Workload& workload, Transport& transport, const RunOptions& options)
      : workload_(workload), transport_(transport), options_(options), began_(transport.Now()) {}

  RunResult Run() {
    double next_poll = 0;
    double give_up = 0;
    for (;;) {
      const double now = Now();
      if (now + kSoon >= next_poll) {
        options_.progress(recorder_.counts(), now);
        next_poll = now + kPollSeconds;
        if (!interrupted_ && options_.interrupted()) {
          interrupted_ = true;
          give_up = now + kDrainSeconds;
          for (const auto& [id, cancel_after] : in_flight_) Cancel(id);
        }
      }
      const std::optional<double> next = interrupted_ ? std::nullopt : BeginWhatIsDue();
      if (in_flight_.empty() && !next) break;
      if (interrupted_ && Now() > give_up) break;
      const double until = next ? std::min(*next, next_poll) : next_poll;
      if (auto event = transport_.Wait(began_ + until)) Handle(std::move(*event));
    }
    const double seconds = Now();
    options_.progress(recorder_.counts(), seconds);
    return {.records = recorder_.TakeRecords(), .interrupted = interrupted_, .began = began_, .seconds = seconds};
  }

 private:
  double Now() const { return transport_.Now() - began_; }

  // Returns the time of the next arrival, if there is one and a free place.
  std::optional<double> BeginWhatIsDue() {
    while (static_cast<int>(in_flight_.size()) < options_.max_in_flight) {
      const double now = Now();
      const std::optional<double> next = workload_.NextArrival(now);
      if (!next || *next > now + kSoon) return next;
      const Request request = workload_.Take(now);
      const double sent = Now();
      const int64_t id = recorder_.Begin(request, *next, sent);
      in_flight_.emplace(id, request.cancel_after_tokens);
      transport_.Begin(id, request);
    }
    return std::nullopt;
  }

  void Handle(TransportEvent event) {
    event.at -= began_;
    const Record& record = recorder_.Apply(event);
    if (record.ended) {
      in_flight_.erase(event.request);
      workload_.OnEnd(record);
      return;
    }
    const auto it = in_flight_.find(event.request);
    if (it->second && record.started && record.tokens.size() >= *it->second && !record.cancelled) Cancel(it->first);
  }

  void Cancel(int64_t id) {
    recorder_.MarkCancelled(id, Now());
    transport_.Cancel(id);
  }

  Workload& workload_;
  Transport& transport_;
  const RunOptions& options_;
  const double began_;
  Recorder recorder_;
  std::map<int64_t, std::optional<uint32_t>> in_flight_;  // id → cancel_after_tokens
  bool interrupted_ = false;
};

}  // namespace

RunResult RunWorkload(Workload& workload, Transport& transport, const RunOptions& options) {
  return Execution(workload, transport, options).Run();
}

}  // namespace moestro::loadtest
