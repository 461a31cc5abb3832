// Prefill and decode as the request logic sees them. One set of peers serves one request and is used by one thread. Its
// calls end when the client's call ends. UNAVAILABLE always means that the role is gone or restarting.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/inference/prompt_costs.h"
#include "services/router/request/types.h"

namespace moestro::router {

struct PrefillRequest {
  std::string request_id;
  std::span<const int32_t> tokens;  // the prompt, then what was generated before a role died
  uint32_t prompt_tokens = 0;       // the prompt alone
  KvLease lease;
  Sampling sampling = {};
  std::span<const int32_t> stop_ids = {};  // for the sampling's constraint
  bool whole_machine = false;              // use all CPUs instead of the role's own
  std::optional<PromptWay> way = {};       // in place or streamed; nullopt: prefill decides
  bool way_required = false;               // FAILED_PRECONDITION rather than another
};

struct PrefilledPrompt {
  Token first_token;             // sampled after the prompt
  bool fp8_activations = false;  // a part at least was computed from inputs rounded to FP8
};

using PrefillProgressFn = absl::FunctionRef<absl::Status(const PrefillProgress&)>;
using ScoresFn = absl::FunctionRef<absl::Status(std::vector<ScoredToken> scores)>;

class PrefillPeer {
 public:
  virtual ~PrefillPeer() = default;

  // Fills the lease's pages from their first invalid token on, and samples the token that follows. ABORTED: the lease
  // was revoked. An error of `progress` ends the call and is returned.
  virtual absl::StatusOr<PrefilledPrompt> Run(const PrefillRequest& job, PrefillProgressFn progress) = 0;

  // Scores all tokens instead of sampling. `scores` gets them in position order.
  virtual absl::Status Score(const PrefillRequest& job, uint32_t top, PrefillProgressFn progress, ScoresFn scores) = 0;
};

struct ReserveRequest {
  std::string request_id;
  std::string fingerprint;          // of the weights that the tokens are for
  std::span<const int32_t> tokens;  // the prompt, then what was generated before
  uint32_t max_tokens = 0;          // still to be generated
  uint64_t arrival = 0;             // its number (AdmissionQueue): the highest gives up pages first
  std::string cache_scope = {};     // selects the cached prefixes that are found, and who finds the new ones
  bool ignore_cache = false;
};

struct Reservation {
  KvLease lease;
  uint32_t max_batch = 0;  // sequences that decode computes at once; 0: it does not say
};

struct DecodeStart {
  Token token;              // the first to be computed
  uint32_t position = 0;    // of `token` = valid tokens in the pages
  uint32_t index = 0;       // of `token` among the generated ones
  uint32_t max_tokens = 0;  // still to be generated after it
  Sampling sampling;
  std::vector<int32_t> stop_ids;
};

// Decode computes the reserved tokens itself, and then generates.
struct DecodePrompt {
  uint32_t index = 0;       // of the first token to be sampled among the generated ones
  uint32_t max_tokens = 0;  // to be generated, the first included
  Sampling sampling;
  std::vector<int32_t> stop_ids;
};

using DecodeEvent = std::variant<Token, FinishReason, PrefillProgress>;

// A lease on decode's pages. Its destructor ends the call in any state, and so returns the pages. ABORTED always means
// that an older request needed the pages.
class DecodeSession {
 public:
  virtual ~DecodeSession() = default;

  // First call. RESOURCE_EXHAUSTED: no pages now. INVALID_ARGUMENT: never. FAILED_PRECONDITION: decode serves other
  // weights. After an error the session is unusable.
  virtual absl::StatusOr<Reservation> Reserve(const ReserveRequest& request) = 0;
  // Second call: one of these two.
  virtual absl::Status Start(const DecodeStart& start) = 0;
  virtual absl::Status Prompt(const DecodePrompt& prompt) = 0;
  // Then until the last event, which is a FinishReason. Progress comes only after Prompt, before the first token.
  virtual absl::StatusOr<DecodeEvent> Next() = 0;
  // From Start or Prompt until a step took the sequence along. Known from the first event on.
  virtual double waited_seconds() const = 0;

  // Gives up a reservation that was not started, and returns what happened to it: ABORTED, UNAVAILABLE, or CANCELLED if
  // decode reports nothing. Never OK.
  virtual absl::Status GiveUp() = 0;
};

class DecodePeer {
 public:
  virtual ~DecodePeer() = default;
  virtual std::unique_ptr<DecodeSession> OpenSession() = 0;
};

}  // namespace moestro::router
