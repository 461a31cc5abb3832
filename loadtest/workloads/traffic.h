// Single requests of random lengths, for the open-loop workload and the ramp.
#pragma once

#include <string>
#include <vector>

#include "loadtest/client/request.h"
#include "loadtest/workloads/lengths.h"
#include "loadtest/workloads/prompts.h"

namespace moestro::loadtest {

struct TrafficOptions {
  Lengths prompt = {};
  Lengths output = {};
  std::vector<std::string> texts = {};  // if not empty, the prompts, in turn
  float temperature = 0;
  int64_t vocab_size = 0;
  int64_t max_context_tokens = 0;  // the output is shortened if both do not fit
  uint64_t seed = 0;
};

class Traffic {
 public:
  explicit Traffic(const TrafficOptions& options)
      : options_(options), prompts_(options.vocab_size, options.seed), lengths_(options.seed + 1) {}
  Request Next(const std::string& group);

 private:
  const TrafficOptions options_;
  PromptMaker prompts_;
  Engine lengths_;
  int64_t made_ = 0;
};

}  // namespace moestro::loadtest
