// The record of one finished request. Times are seconds since the run began, on the client's clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace moestro::loadtest {

struct Arrival {  // of one message with tokens
  double at = 0;
  uint32_t tokens = 0;
};

struct Record {
  std::string group;
  int64_t tag = 0;
  int server = 0;

  double scheduled = 0;  // when the workload planned it
  double sent = 0;
  std::optional<double> started;    // the server reported the start
  std::optional<double> cancelled;  // the client cancelled it
  std::optional<double> ended;
  std::vector<Arrival> arrivals;
  std::vector<int32_t> tokens;

  absl::Status status;     // valid once it has ended
  std::string request_id;  // the server's
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t resumed = 0;
  std::string path;
  std::string path_reason;
  std::optional<double> queue_seconds;  // as the server reports

  bool completed() const { return ended.has_value() && status.ok(); }
  // Ended because the client cancelled it. A request that ended before the server got the cancellation is completed.
  bool was_cancelled() const { return ended.has_value() && !status.ok() && cancelled.has_value(); }
  bool failed() const { return ended.has_value() && !status.ok() && !cancelled.has_value(); }

  // Time to the first token: from sending to the first message with one.
  std::optional<double> ttft() const {
    return arrivals.empty() ? std::nullopt : std::optional(arrivals.front().at - sent);
  }
  // Time per output token after the first message: the speed that a reader sees.
  std::optional<double> tpot() const {
    if (arrivals.size() < 2) return std::nullopt;
    const double later = static_cast<double>(tokens.size()) - arrivals.front().tokens;
    return (arrivals.back().at - arrivals.front().at) / later;
  }
  // The longest time without an event: from sending, between messages, up to the end.
  double longest_wait() const;
};

// "what: message". UNAVAILABLE stays; every other code becomes FAILED_PRECONDITION, because a request's code would look
// like an error of this process (such as a wrong flag).
absl::Status RequestError(const absl::Status& error, const std::string& what);

// The first error, if no request completed.
absl::Status CheckAnyCompleted(const std::vector<Record>& records);

}  // namespace moestro::loadtest
