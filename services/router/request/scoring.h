// Scores a given text. Like a generation that ends with its prefill.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "services/router/request/request_life.h"
#include "services/router/request/types.h"

namespace moestro::router {

class Scoring {
 public:
  // Gets every position once, in order. An error ends the request.
  using Sink = std::function<absl::Status(std::vector<ScoredToken>)>;

  // All must outlive this object.
  Scoring(const ScoreJob& job, const RouterEnvironment& environment, const CallPeers& call, Sink sink);

  absl::Status Run();  // call once

  RequestSummary Summary() const;  // valid after Run, also when it failed

 private:
  absl::Status Attempt();
  absl::Status WaitForPrefill();
  absl::Status Deliver(std::vector<ScoredToken> scores);

  const ScoreJob& job_;
  const RouterEnvironment environment_;
  PrefillPeer& prefill_;
  const Sink sink_;
  RequestLife life_;
  size_t received_ = 0;   // positions of the running attempt
  size_t delivered_ = 0;  // positions the client has
};

}  // namespace moestro::router
