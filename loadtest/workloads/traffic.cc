#include "loadtest/workloads/traffic.h"

#include <algorithm>

namespace moestro::loadtest {

Request Traffic::Next(const std::string& group) {
  Request request;
  request.group = group;
  request.tag = made_;
  request.temperature = options_.temperature;
  request.seed = options_.seed + static_cast<uint64_t>(made_);
  const int64_t prompt = std::min(options_.prompt.Draw(lengths_), options_.max_context_tokens - 1);
  const int64_t output = options_.output.Draw(lengths_);
  if (options_.texts.empty()) {
    request.token_ids = prompts_.Random(prompt);
    request.max_tokens = static_cast<uint32_t>(std::min(output, options_.max_context_tokens - prompt));
  } else {
    request.text = options_.texts[static_cast<size_t>(made_) % options_.texts.size()];
    request.max_tokens = static_cast<uint32_t>(output);
  }
  ++made_;
  return request;
}

}  // namespace moestro::loadtest
