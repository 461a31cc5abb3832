// The gRPC side of peers.h: one channel to each role, shared by all requests. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/inference/prompt_costs.h"
#include "services/router/admission/roles.h"
#include "services/router/request/peers.h"
#include "services/router/rpc/client_call.h"

namespace moestro::router {

// What a role says of itself.
struct RoleFigures {
  std::vector<PromptCost> costs;  // of prompts
  uint64_t kv_tokens = 0;         // of decode: what its KV pool can hold; 0: of others, or unknown
  int background_sequences = 0;   // the same: requests of a batch that it should have at once
  double step_seconds = 0;        // the same: what a step of all places takes
};

class PeerChannels {
 public:
  PeerChannels(const std::string& prefill_address, const std::string& decode_address);
  ~PeerChannels();

  // Peers for one call of a client, whose deadline and cancellation their calls inherit. The call must outlive them.
  std::unique_ptr<PrefillPeer> Prefill(const ClientCall& call);
  std::unique_ptr<DecodePeer> Decode(const ClientCall& call);

  // What the role's health service says. Takes at most two seconds.
  Life Ping(Role role);

  // nullopt: it did not answer within a second.
  std::optional<RoleFigures> Figures(Role role);

  // Ends the role's calls in flight. They fail as if the role were gone.
  void CutOff(Role role);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::router
