// Random requests side by side, then each of them again alone: the tokens must be the same, bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loadtest/client/request.h"
#include "loadtest/records/record.h"
#include "loadtest/workloads/lengths.h"

namespace moestro::loadtest {

struct VerifyOptions {
  int requests = 200;
  Lengths prompt;
  Lengths output;
  double cancelled_share = 0.2;  // of the requests; cancelled at a random token
  double sampled_share = 0.5;    // with temperature 0.8 and a seed; the others are greedy
  double prefixed_share = 0.5;   // begin with part of one of `prefixes` shared beginnings
  int prefixes = 4;
  int64_t vocab_size = 0;
  int64_t max_context_tokens = 0;
  uint64_t seed = 0;
};

// tag: the index. Groups: "greedy", "sampled", "cancelled".
std::vector<Request> MakeVerifyRequests(const VerifyOptions& options);

// The same requests, to be run alone: none is cancelled, group "alone". Includes only those with something to compare:
// at least one token arrived the first time.
std::vector<Request> MakeAloneRequests(const std::vector<Request>& requests, const std::vector<Record>& crowded);

struct Mismatch {
  int64_t index = 0;    // of the request
  size_t position = 0;  // first differing token, or where one of both ended
  std::string what;
};
struct Verdict {
  int64_t compared = 0;           // completed requests: all of their tokens
  int64_t prefixes_compared = 0;  // the others: up to their last token
  int64_t tokens = 0;             // compared
  int64_t not_compared = 0;       // got tokens, but the second run failed or was cut short
  std::vector<Mismatch> mismatches;
};
// Matches `crowded` and `alone` by tag.
Verdict CompareTokens(const std::vector<Record>& crowded, const std::vector<Record>& alone);

}  // namespace moestro::loadtest
