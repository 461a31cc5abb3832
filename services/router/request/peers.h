// Prefill and decode as the request logic sees them. One set of peers serves one request and is used by one thread; the
// calls it makes end when the client's call ends. UNAVAILABLE always means: the role is gone or restarting.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "services/router/request/types.h"

namespace moestro {

struct PrefillRequest {
  std::string request_id;
  std::span<const int32_t> tokens;  // the prompt, then what was generated before a role died
  uint32_t prompt_tokens = 0;       // the prompt alone
  KvLease lease;
  Sampling sampling;
  bool whole_machine = false;  // use all CPUs, not just the role's own
};

using PrefillProgressFn = absl::FunctionRef<absl::Status(const PrefillProgress&)>;
using ScoresFn = absl::FunctionRef<absl::Status(std::vector<ScoredToken> scores)>;

class PrefillPeer {
 public:
  virtual ~PrefillPeer() = default;

  // Fills the lease's pages from their first token that is not valid yet and samples the token that follows. ABORTED:
  // the lease was revoked. An error of `progress` ends the call and is returned.
  virtual absl::StatusOr<Token> Run(const PrefillRequest& job, PrefillProgressFn progress) = 0;

  // Scores all tokens instead; `scores` gets them in position order.
  virtual absl::Status Score(const PrefillRequest& job, uint32_t top, PrefillProgressFn progress, ScoresFn scores) = 0;
};

struct ReserveRequest {
  std::string request_id;
  std::string fingerprint;          // of the weights that the tokens are for
  std::span<const int32_t> tokens;  // the prompt, then what was generated before
  uint32_t max_tokens = 0;          // that may still be generated
  uint64_t arrival = 0;             // who came last gives up pages first
  std::string cache_scope = {};     // whose cached prefixes are found, and who finds what is computed
  bool ignore_cache = false;
};

struct DecodeStart {
  Token token;              // the first to be fed in
  uint32_t position = 0;    // of `token` = valid tokens in the pages
  uint32_t index = 0;       // of `token` among the generated ones
  uint32_t max_tokens = 0;  // still to be generated after it
  Sampling sampling;
  std::vector<int32_t> stop_ids;
};

// Decode is to compute the reserved tokens itself, then to generate.
struct DecodePrompt {
  uint32_t index = 0;       // of the first token to be sampled among the generated ones
  uint32_t max_tokens = 0;  // to be generated, the first included
  Sampling sampling;
  std::vector<int32_t> stop_ids;
};

using DecodeEvent = std::variant<Token, FinishReason, PrefillProgress>;

// A lease on decode's pages. Destroying it ends the call, whatever state it is in, and so gives the pages back. ABORTED
// always means: the pages were needed for an older request.
class DecodeSession {
 public:
  virtual ~DecodeSession() = default;

  // First call. RESOURCE_EXHAUSTED: not now; INVALID_ARGUMENT: never; FAILED_PRECONDITION: decode serves other weights.
  // After an error the session is of no more use.
  virtual absl::StatusOr<KvLease> Reserve(const ReserveRequest& request) = 0;
  // Second call, one of the two.
  virtual absl::Status Start(const DecodeStart& start) = 0;
  virtual absl::Status Prompt(const DecodePrompt& prompt) = 0;
  // After that; a FinishReason is the last event, progress comes before the first token and after Prompt only.
  virtual absl::StatusOr<DecodeEvent> Next() = 0;

  // Gives a reservation up that was not started, and tells what has become of it: ABORTED, UNAVAILABLE, or CANCELLED if
  // decode knows of nothing that had happened to it. Never OK.
  virtual absl::Status GiveUp() = 0;
};

class DecodePeer {
 public:
  virtual ~DecodePeer() = default;
  virtual std::unique_ptr<DecodeSession> OpenSession() = 0;
};

}  // namespace moestro
