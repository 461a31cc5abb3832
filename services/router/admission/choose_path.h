// Chooses how a prompt is computed (cloud-grade SLOs, section 3.3.2). Short prompts run in chunks inside decode's
// steps. Long prompts run in prefill: with the whole machine when no request decodes, beside decode otherwise. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/router/admission/clock.h"
#include "services/router/admission/roles.h"
#include "services/router/request/types.h"

namespace moestro::router {

struct PathSettings {
  // Every prompt runs in decode: for comparison, and for machines on which splitting loses.
  bool unified = false;
  // A prompt with fewer new tokens is short. The paper's value (3.3.2). The paper gives no reason for it, and the best
  // limit has not been measured here.
  uint32_t chunked_below_tokens = 2048;
  // Decode counts as in use for this long after its last work: its user is likely to ask again. The paper's value.
  RequestClock::Duration decode_idle_window = std::chrono::minutes(5);
};

// What generations do at this moment.
struct NodeLoad {
  uint32_t decoding = 0;    // running in decode, including prompts computed in chunks
  uint32_t prefilling = 0;  // running or waiting in prefill; they decode afterwards
  // Time since decode last had work; nullopt: never, as far as this process knows. Meaningless while decoding > 0.
  std::optional<RequestClock::Duration> decode_idle = std::nullopt;
};

struct PathChoice {
  PrefillPath path = PrefillPath::kChunked;
  // For the client: "812 new tokens < 2048". Tells of other requests only whether decode is in use.
  std::string reason;
  std::string load;  // for the operator: the load from other requests
};

// True if a prompt with `new_tokens` new tokens belongs to the prefill role.
bool IsForPrefill(const PathSettings& settings, uint32_t new_tokens);

// True if prefill may use all CPUs. That is, no request decodes, and none has decoded within the window. Also, none is
// ahead in prefill's queue, because it will decode next.
bool DecodeIsIdle(const PathSettings& settings, const NodeLoad& load);

// `new_tokens`: tokens that are not in the pages yet, of the prompt and of what was generated before a role died.
// `prefill_up` = false: prefill has been away for as long as requests wait for it. Long prompts then go to decode,
// which is slow but does not fail them.
PathChoice ChoosePath(const PathSettings& settings, const NodeLoad& load, uint32_t new_tokens, bool prefill_up);

// The roles that generation needs.
std::vector<Role> NeededRoles(const PathSettings& settings);

}  // namespace moestro::router
