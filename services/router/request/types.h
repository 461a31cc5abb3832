// The types that the router's logic passes around.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/inference/types.h"

namespace moestro::router {

// What the client learns when its request is admitted.
struct AdmissionNotice {
  uint32_t cached_tokens = 0;  // prompt tokens whose KV was already cached
  PrefillPath path = PrefillPath::kChunked;
  std::string path_reason;
};

// A generation with every value resolved: validated, tokenized, defaults filled in.
struct GenerateJob {
  std::string request_id;
  std::string fingerprint;      // of the weights that the tokens are for
  std::vector<int32_t> prompt;  // not empty
  uint32_t max_tokens = 0;      // >= 1; prompt + max_tokens fit the context
  uint32_t choices = 1;         // of the same request, this one included
  Sampling sampling;
  std::vector<int32_t> stop_ids;
  std::string cache_scope = {};
  std::vector<std::string> stop = {};  // texts that end the answer; none is empty
  bool keep_stop_text = false;         // the answer has the one that ended it
  bool keep_special_tokens = false;    // in the answer's text
  std::optional<PromptWay> way = {};   // the only one for its prompt; nullopt: the router chooses
};

struct ScoreJob {
  std::string request_id;
  std::string fingerprint;      // of the weights that the tokens are for
  std::vector<int32_t> tokens;  // not empty
  uint32_t top = 0;
  std::optional<PromptWay> way = {};  // not chunked; nullopt: in place
};

// How a request went, complete or not.
struct RequestSummary {
  FinishReason reason = FinishReason::kLength;
  std::string stop_text = {};  // the one of the job's stop texts that ended the answer; empty = none did
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;                // of the prompt, when the request was admitted
  uint32_t used_tokens = 0;                  // 0 until it was admitted; then the prompt's, and the generated ones
  uint32_t resumed = 0;                      // times it resumed after a role had died or its pages had been taken
  PrefillPath path = PrefillPath::kChunked;  // of the last attempt; meaningless for a score
  bool fp8_activations = false;              // its prefill rounded inputs of FP8 weights to FP8, in a part at least
  double queue_seconds = 0;                  // until the first pages, and for a place in decode's batch
  double prefill_seconds = 0;                // from then to the first token
  double decode_seconds = 0;                 // from the first token to the last
  double time_to_first_token_seconds = 0;
  double total_seconds = 0;
};

}  // namespace moestro::router
