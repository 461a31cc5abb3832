// What roles exchange about a request: the messages of proto/moestro/v1/types.proto without the wire format.
// common/rpc/convert.h converts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moestro {

// What the whole generated text must be.
struct Constraint {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kGrammar, kRegex };
  Kind kind = Kind::kNone;
  std::string text = {};  // a JSON schema, a grammar (GBNF) or a regular expression; empty for the other kinds
};

// How a token is sampled from the model's distribution.
struct Sampling {
  float temperature = 0;  // 0 = greedy (ties: lowest id)
  float top_p = 1;        // smallest set of most likely tokens whose probability reaches top_p; 1 = off
  int32_t top_k = 0;      // 0 = off
  uint64_t seed = 0;
  float min_p = 0;  // drops tokens less likely than this times the most likely one, after temperature; 0 = off
  // Subtracted from the logits of tokens generated so far: once, and for each time. 0 = off.
  float presence_penalty = 0;
  float frequency_penalty = 0;
  // Divides the positive and multiplies the negative logits of tokens of the prompt or generated so far; 1 = off.
  float repetition_penalty = 1;
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // added to the logits of these ids, each at most once
  uint32_t top_logprobs = 0;                               // alternatives reported with each token
  Constraint constraint = {};
};

// Natural log of the softmax over all valid tokens, before everything that Sampling changes.
struct TokenAlternative {
  int32_t id = 0;
  float logprob = 0;
};

struct Token {
  int32_t id = 0;
  float logprob = 0;                       // as of an alternative
  std::vector<TokenAlternative> top = {};  // the most likely tokens, in descending order
};

// The token at one position of a scored text; a text's first token has no logprob.
struct ScoredToken {
  int32_t id = 0;
  std::optional<float> logprob;
  std::vector<TokenAlternative> top;  // the most likely tokens, in descending order
};

enum class FinishReason { kStop, kLength };

// Where and how a prompt is computed: in chunks within decode's steps, by prefill beside decode, or by prefill on all
// CPUs while decode is idle.
enum class PrefillPath { kChunked = 0, kSplit = 1, kWholeMachine = 2 };
inline constexpr std::array<PrefillPath, 3> kPrefillPaths = {PrefillPath::kChunked, PrefillPath::kSplit,
                                                             PrefillPath::kWholeMachine};

inline const char* PathName(PrefillPath path) {
  if (path == PrefillPath::kChunked) return "chunked";
  return path == PrefillPath::kSplit ? "split" : "whole_machine";
}

// How much of a prompt's KV is computed.
struct PrefillProgress {
  uint32_t done_tokens = 0;
  uint32_t total_tokens = 0;
};

// The right to write pages of decode's KV pool. Decode grants it to prefill through the router.
struct KvLease {
  std::string pool = {};  // shared-memory object; the name changes whenever decode restarts
  uint32_t slot = 0;
  uint64_t id = 0;
  // In token order. The first cached_tokens tokens are in pages that others may read and nobody writes. The pages after
  // them belong to this lease alone.
  std::vector<uint32_t> pages = {};
  int64_t cached_tokens = 0;  // whole pages from the prefix cache; initial number of valid tokens of the lease
};

}  // namespace moestro
