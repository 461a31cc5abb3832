// What the router's logic passes around: the messages of the wire without the wire.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moestro {

struct Sampling {
  float temperature = 0;  // 0 = greedy
  float top_p = 1;        // (0, 1]; 1 = off
  int32_t top_k = 0;      // 0 = off
  uint64_t seed = 0;
};

struct GeneratedToken {
  int32_t id = 0;
  float logprob = 0;
};

// One position of a scored text; the first token of a text has no logprob.
struct ScoredPosition {
  int32_t id = 0;
  std::optional<float> logprob;
  std::vector<GeneratedToken> top;  // most likely first
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

// How far a prompt is.
struct PrefillProgress {
  uint32_t done_tokens = 0;
  uint32_t total_tokens = 0;
};

// What the client learns when its request is admitted.
struct AdmissionNotice {
  uint32_t cached_tokens = 0;  // prompt tokens whose KV was there already
  PrefillPath path = PrefillPath::kChunked;
  std::string path_reason;
};

// The right to fill pages of decode's KV pool, handed from decode to prefill untouched.
struct PageLease {
  std::string pool;
  uint32_t slot = 0;
  uint64_t id = 0;
  std::vector<uint32_t> pages;
};

// A generation with everything resolved: validated, tokenized, defaults filled in.
struct GenerateJob {
  std::string request_id;
  std::string fingerprint;      // of the weights that the tokens are for
  std::vector<int32_t> prompt;  // not empty
  uint32_t max_tokens = 0;      // >= 1; prompt + max_tokens fit the context
  Sampling sampling;
  std::vector<int32_t> stop_ids;
};

struct ScoreJob {
  std::string request_id;
  std::string fingerprint;      // of the weights that the tokens are for
  std::vector<int32_t> tokens;  // not empty
  uint32_t top = 0;
};

// How a request went, complete or not.
struct RequestSummary {
  FinishReason reason = FinishReason::kLength;
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;                // of the prompt, when the request was admitted
  uint32_t resumed = 0;                      // times it went on after a role had died or its pages had been taken away
  PrefillPath path = PrefillPath::kChunked;  // of the last attempt; means nothing for a score
  double queue_seconds = 0;                  // until the first pages
  double prefill_seconds = 0;                // from then to the first token
  double decode_seconds = 0;                 // from the first token to the last
  double time_to_first_token_seconds = 0;
  double total_seconds = 0;
};

}  // namespace moestro
