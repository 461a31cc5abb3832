// Chooses how a prompt is computed. Pure functions.
//
// Two policies. The paper's (cloud-grade SLOs, section 3.3.2): short prompts run in chunks inside decode's steps, long
// ones in prefill. By prediction: the way with which the first token comes soonest, as the roles predict from what they
// measured, and the paper's where that says nothing. In both, prefill has the whole machine when no request decodes,
// and works beside decode otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/inference/prompt_costs.h"
#include "services/router/admission/clock.h"
#include "services/router/admission/roles.h"
#include "services/router/request/types.h"

namespace moestro::router {

struct PathSettings {
  // Every prompt runs in decode: for comparison, and for machines on which splitting loses.
  bool unified = false;
  // By prediction instead of `chunked_below_tokens`, where there is a prediction.
  bool predicted = false;
  // A prompt with fewer new tokens is short. The paper's value (3.3.2), for which it gives no reason.
  uint32_t chunked_below_tokens = 2048;
  // Decode counts as in use for this long after its last work: its user is likely to ask again. The paper's value.
  RequestClock::Duration decode_idle_window = std::chrono::minutes(5);
};

// A prediction that is better than what the paper's rule gives by less than this changes nothing. So prompts of about
// the same length go the same way, and what the prediction does not know (a call, a wake-up) does not decide.
inline constexpr double kPredictedMargin = 1.1;
inline constexpr double kPredictedMarginSeconds = 0.010;

// What generations do at this moment.
struct NodeLoad {
  uint32_t decoding = 0;    // running in decode, including prompts computed in chunks
  uint32_t prefilling = 0;  // running or waiting in prefill; they decode afterwards
  // Time since decode last had work; nullopt: never, as far as this process knows. Meaningless while decoding > 0.
  std::optional<RequestClock::Duration> decode_idle = std::nullopt;
};

// Seconds to the first token, by way; nullopt: not known, or the prompt cannot go this way.
struct PathForecast {
  std::array<std::optional<double>, kPromptWays.size()> seconds{};
  double place_seconds = 0;  // of the chunked way, for a place in decode's batch
  // The same of the prompt by itself: beside one decoding sequence if decode is in use, with nothing else before it.
  std::array<std::optional<double>, kPromptWays.size()> for_client{};

  std::optional<double> of(PromptWay way) const { return seconds[static_cast<size_t>(way)]; }
};

struct PathChoice {
  PrefillPath path = PrefillPath::kChunked;
  // What prefill is told; nullopt: it decides. kChunked for that path.
  std::optional<PromptWay> way = std::nullopt;
  // For the client: "812 new tokens < 2048". Tells of other requests only whether decode is in use.
  std::string reason;
  std::string load;  // for the operator: the load from other requests
};

// True if a prompt with `new_tokens` new tokens belongs to the prefill role by the paper's rule. It then waits for one
// that is away.
bool IsForPrefill(const PathSettings& settings, uint32_t new_tokens);

// True if prefill may use all CPUs. That is, no request decodes, and none has decoded within the window. Also, none is
// ahead in prefill's queue, because it will decode next.
bool DecodeIsIdle(const PathSettings& settings, const NodeLoad& load);

// `new_tokens`: tokens that are not in the pages yet, of the prompt and of what was generated before a role died.
// `prefill_up` = false: prefill has been away for as long as requests wait for it. Long prompts then go to decode,
// which is slow but does not fail them. `asked`: the client's own choice, which is taken whatever the settings.
PathChoice ChoosePath(const PathSettings& settings, const NodeLoad& load, uint32_t new_tokens, bool prefill_up,
                      const PathForecast& forecast = {}, std::optional<PromptWay> asked = std::nullopt);

// The roles that generation needs.
std::vector<Role> NeededRoles(const PathSettings& settings);

}  // namespace moestro::router
