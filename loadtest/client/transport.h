// How the runner reaches the servers and receives events from them. The real one uses gRPC; that of the tests has its
// own clock. Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "loadtest/client/request.h"

namespace moestro::loadtest {

struct Started {  // admitted
  std::string request_id;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  std::string path;  // "chunked", "split", "whole machine"; empty: not reported
  std::string path_reason;
};
struct Tokens {  // one message
  std::vector<int32_t> ids;
};
struct Finished {  // the server's own figures, before a successful end
  double queue_seconds = 0;
  double server_ttft_seconds = 0;
  double prefill_seconds = 0;
  uint32_t cached_tokens = 0;
  uint32_t resumed = 0;
  std::string path;
};
struct End {  // the last event of every request
  absl::Status status;
};

struct TransportEvent {
  int64_t request = 0;
  double at = 0;  // Transport::Now when it arrived
  std::variant<Started, Tokens, Finished, End> what;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Seconds on a monotonic clock.
  virtual double Now() const = 0;
  // `id` names the request in events. Failures of any kind arrive as End.
  virtual void Begin(int64_t id, const Request& request) = 0;
  // End follows soon, with CANCELLED unless the request has completed first. Ids that have ended are ignored.
  virtual void Cancel(int64_t id) = 0;
  // The next event; nullopt if none arrives before Now() reaches `until`.
  virtual std::optional<TransportEvent> Wait(double until) = 0;
};

}  // namespace moestro::loadtest
