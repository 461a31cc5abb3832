// One sequence that decode computes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/model/sampler.h"
#include "common/text/grammar/token_constraint.h"
#include "services/decode/lease_table.h"
#include "services/decode/mask_finder.h"
#include "services/decode/token_stream.h"

namespace moestro::decode {

// What remains to be generated.
struct Continuation {
  uint64_t index = 0;      // of the next token to be sampled among the request's generated tokens
  int64_t max_tokens = 0;  // still to be generated
  Sampling sampling = {};
  std::vector<int32_t> stop_ids = {};
  // Null: none. Stands after the tokens generated so far.
  std::shared_ptr<text::grammar::TokenConstraint> constraint = nullptr;
};

// The lease's tokens from `valid` on are still to be computed: the rest of a prompt, or the one token that was
// generated last. Once the last of them is computed, the next token is sampled. So a prompt becomes a decoding sequence
// without a separate transition. A sequence with a constraint may first have to wait for its mask: it then keeps the
// logits, and has no row in a step.
struct Sequence {
  std::shared_ptr<Lease> lease;
  Continuation next;
  int64_t valid = 0;          // tokens whose KV is complete
  int64_t prompt_tokens = 0;  // computed here, with progress reported; 0: prefill computed them
  std::shared_ptr<TokenStream> stream = std::make_shared<TokenStream>();
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
  bool ended = false;
  std::unique_ptr<MaskFinder::Search> mask = nullptr;  // of the next token; null: not looked for yet
  bool masks_are_dear = false;                         // see MaskFinder::Find
  std::vector<float> logits = {};                      // of the next token, while it waits for the mask
  std::chrono::steady_clock::time_point waits_since = {};

  // At least 1 while the sequence runs and does not wait for a mask.
  int64_t pending() const { return static_cast<int64_t>(lease->tokens.size()) - valid; }
  bool waits_for_mask() const { return !logits.empty(); }

  // Releases the pages before the caller learns of the end.
  void End(LeaseTable& leases, TokenStream::Event event) {
    const auto* error = std::get_if<absl::Status>(&event);
    if (error != nullptr && absl::IsInternal(*error)) {
      leases.ReleaseFailed(*lease);
    } else {
      leases.Release(*lease);
    }
    ended = true;
    mask = nullptr;
    stream->Push(std::move(event));
  }
};

using Batch = std::vector<std::shared_ptr<Sequence>>;

}  // namespace moestro::decode
