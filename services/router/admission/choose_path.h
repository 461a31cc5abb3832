// Which way a prompt is computed (cloud-grade SLOs, section 3.3.2): short ones in chunks inside decode's steps; long
// ones by prefill, with the whole machine when nobody decodes, beside decode when somebody does. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/router/admission/clock.h"
#include "services/router/admission/roles.h"
#include "services/router/request/types.h"

namespace moestro {

struct PathSettings {
  // Every prompt in decode: for comparison, and for machines on which splitting loses.
  bool unified = false;
  // A prompt of fewer new tokens is short. The paper's figure (3.3.2), for which it gives no reason; nor was the best
  // limit measured here.
  uint32_t chunked_below_tokens = 2048;
  // Decode counts as in use for so long after its last work, for its user is likely to ask again. The paper's figure.
  Clock::Duration decode_idle_window = std::chrono::minutes(5);
};

// What generations do at this moment.
struct NodeLoad {
  uint32_t decoding = 0;    // run in decode, prompts in chunks included
  uint32_t prefilling = 0;  // run or wait in prefill; will decode after it
  // Since decode last had work; nullopt: it never had, as far as this process knows. Means nothing while decoding > 0.
  std::optional<Clock::Duration> decode_idle = std::nullopt;
};

struct PathChoice {
  PrefillPath path = PrefillPath::kChunked;
  // For the client: "812 new tokens < 2048". Of other people's requests it says no more than that decode is in use.
  std::string reason;
  std::string load;  // for the operator: what other requests do at this moment
};

// True if such a prompt belongs to the prefill role.
bool IsForPrefill(const PathSettings& settings, uint32_t new_tokens);

// True if prefill may use all CPUs: nobody decodes, has done so within the window, or will as soon as a prompt is done
// that is ahead in prefill's line.
bool DecodeIsIdle(const PathSettings& settings, const NodeLoad& load);

// `new_tokens`: what is not in the pages yet, of the prompt and of what was generated before a role died. `prefill_up`
// = false: the role has not answered for as long as requests wait for it; its prompts then go to decode, slowly, rather
// than fail.
PathChoice ChoosePath(const PathSettings& settings, const NodeLoad& load, uint32_t new_tokens, bool prefill_up);

// The roles without which nothing can be generated.
std::vector<Role> NeededRoles(const PathSettings& settings);

}  // namespace moestro
