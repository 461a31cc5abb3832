// A server without a network: its clock is moved by Wait, and every request takes the times that the test says.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "loadtest/client/transport.h"

namespace moestro::loadtest {

struct FakeTimes {
  double ttft = 1;
  double tpot = 0.1;
  absl::Status status = {};  // an error comes instead of the first token
};

class FakeTransport : public Transport {
 public:
  using Times = std::function<FakeTimes(const Request& request, int in_flight)>;
  using TokenAt = std::function<int32_t(const Request& request, int position)>;

  explicit FakeTransport(
      Times times = [](const Request&, int) { return FakeTimes{}; },
      TokenAt token = [](const Request&, int position) { return position; })
      : times_(std::move(times)), token_(std::move(token)) {}

  double Now() const override { return now_; }

  void Begin(int64_t id, const Request& request) override {
    ++in_flight_;
    most_in_flight_ = std::max(most_in_flight_, in_flight_);
    requests_.push_back(request);
    const FakeTimes times = times_(request, in_flight_);
    if (!times.status.ok()) {
      Plan(now_ + times.ttft, id, End{times.status});
      return;
    }
    Plan(now_, id,
         Started{.request_id = "r" + std::to_string(id),
                 .prompt_tokens = static_cast<uint32_t>(request.token_ids.size()),
                 .cached_tokens = 0,
                 .path = "chunked",
                 .path_reason = ""});
    double at = now_ + times.ttft;
    for (uint32_t i = 0; i < request.max_tokens; ++i, at += times.tpot) {
      Plan(at, id, Tokens{{token_(request, static_cast<int>(i))}});
    }
    Plan(at, id, Finished{.queue_seconds = 0.25, .cached_tokens = 3, .path = "split"});
    Plan(at, id, End{absl::OkStatus()});
  }

  void Cancel(int64_t id) override {
    const size_t before = events_.size();
    std::erase_if(events_, [&](const auto& entry) { return entry.second.request == id; });
    if (events_.size() != before) Plan(now_, id, End{absl::CancelledError("by the client")});
  }

  std::optional<TransportEvent> Wait(double until) override {
    if (events_.empty() || events_.begin()->first > until) {
      now_ = std::max(now_, until);
      return std::nullopt;
    }
    TransportEvent event = std::move(events_.begin()->second);
    now_ = std::max(now_, events_.begin()->first);
    event.at = now_;
    events_.erase(events_.begin());
    if (std::holds_alternative<End>(event.what)) --in_flight_;
    return event;
  }

  int most_in_flight() const { return most_in_flight_; }
  const std::vector<Request>& requests() const { return requests_; }

 private:
  template <typename What>
  void Plan(double at, int64_t id, What what) {
    events_.emplace(at, TransportEvent{.request = id, .at = at, .what = std::move(what)});
  }

  const Times times_;
  const TokenAt token_;
  double now_ = 1000;  // clocks begin anywhere
  int in_flight_ = 0;
  int most_in_flight_ = 0;
  std::multimap<double, TransportEvent> events_;  // equal times: in the order in which they were planned
  std::vector<Request> requests_;
};

}  // namespace moestro::loadtest
