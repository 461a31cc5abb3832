// One request of a load test, before it is sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moestro::loadtest {

struct Request {
  std::string group;               // requests of one group are summarised together: "prefill", "turn 2"
  int64_t tag = 0;                 // the workload's own number; copied to the record
  int server = 0;                  // index among the servers under test
  std::vector<int32_t> token_ids;  // the prompt, or
  std::string text;                // the prompt, if there are no ids
  uint32_t max_tokens = 1;
  bool ignore_eos = true;  // always max_tokens tokens, so that two runs do the same work
  float temperature = 0;   // 0: greedy
  uint64_t seed = 0;       // with a temperature
  // The client cancels once it has this many tokens; 0: as soon as the server reports the start.
  std::optional<uint32_t> cancel_after_tokens;
};

}  // namespace moestro::loadtest
