// What the roles say to each other about a request: the messages of proto/moestro/v1/types.proto without the wire.
// common/rpc/convert.h translates.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moestro {

// How a token is drawn from the model's distribution.
struct Sampling {
  float temperature = 0;  // 0 = greedy (ties: lowest id)
  float top_p = 1;        // smallest set of most likely tokens whose probability reaches top_p; 1 = off
  int32_t top_k = 0;      // 0 = off
  uint64_t seed = 0;
};

struct Token {
  int32_t id = 0;
  float logprob = 0;  // natural log of the softmax over all valid tokens, before temperature and filters
};

// The token at one position of a scored text; the first token of a text has no logprob.
struct ScoredToken {
  int32_t id = 0;
  std::optional<float> logprob;
  std::vector<Token> top;  // the most likely alternatives, most likely first
};

enum class FinishReason { kStop, kLength };

// Where and how a prompt is computed: in chunks inside decode's steps, by prefill beside decode, or by prefill with all
// CPUs while decode has nothing to do.
enum class PrefillPath { kChunked = 0, kSplit = 1, kWholeMachine = 2 };
inline constexpr std::array<PrefillPath, 3> kPrefillPaths = {PrefillPath::kChunked, PrefillPath::kSplit,
                                                             PrefillPath::kWholeMachine};

inline const char* PathName(PrefillPath path) {
  if (path == PrefillPath::kChunked) return "chunked";
  return path == PrefillPath::kSplit ? "split" : "whole_machine";
}

// How much of a prompt has its KV.
struct PrefillProgress {
  uint32_t done_tokens = 0;
  uint32_t total_tokens = 0;
};

// The right to fill pages of decode's KV pool, which decode hands to prefill through the router.
struct KvLease {
  std::string pool = {};  // shared-memory object; its name changes whenever decode restarts
  uint32_t slot = 0;
  uint64_t id = 0;
  // In token order. The first cached_tokens tokens lie in pages that others may read too and nobody writes; the pages
  // after them are the lease's own.
  std::vector<uint32_t> pages = {};
  int64_t cached_tokens = 0;  // whole pages that were in the prefix cache; the lease began with so many valid tokens
};

}  // namespace moestro
