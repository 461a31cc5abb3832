// Sends the requests of a trace at their recorded times.
#pragma once

#include <utility>
#include <vector>

#include "loadtest/workloads/prompts.h"
#include "loadtest/workloads/trace.h"
#include "loadtest/workloads/workload.h"

namespace moestro::loadtest {

class ReplayWorkload : public Workload {
 public:
  // `speed` 2: twice as fast as recorded.
  ReplayWorkload(std::vector<TraceEntry> trace, double speed, int64_t vocab_size, uint64_t seed)
      : trace_(std::move(trace)), speed_(speed), prompts_(vocab_size, seed) {}

  std::optional<double> NextArrival(double) override {
    return next_ < trace_.size() ? std::optional(trace_[next_].arrival / speed_) : std::nullopt;
  }
  Request Take(double) override {
    const TraceEntry& entry = trace_[next_];
    Request request;
    request.group = entry.prefix_id.empty() ? "no shared prefix" : "shared prefix";
    request.tag = static_cast<int64_t>(next_++);
    request.token_ids = prompts_.WithPrefix(entry.prefix_id, entry.prefix_tokens, entry.prompt_tokens);
    request.max_tokens = static_cast<uint32_t>(entry.output_tokens);
    return request;
  }

 private:
  const std::vector<TraceEntry> trace_;
  const double speed_;
  PromptMaker prompts_;
  size_t next_ = 0;
};

}  // namespace moestro::loadtest
