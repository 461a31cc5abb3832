// Offline batches: many prompts at once, as MoE-Lightning's evaluation has them (Table 3). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/client/request.h"
#include "loadtest/workloads/prompts.h"

namespace moestro::loadtest {

// What the paper says of the lengths of a workload's prompts, in tokens.
struct BatchWorkload {
  const char* name;
  double average;   // S_avg
  int64_t longest;  // S_max
};
inline constexpr BatchWorkload kBatchWorkloads[] = {
    {"mtbench", 77, 418}, {"synthetic", 242, 256}, {"summarisation", 1693, 1984}};

// Lengths with a given average: log-normal, cut at the longest. The table does not give their spread: sigma is 1, near
// the 0.95 with which 80 prompts, as MT-Bench has, of average 77 have 418 as the longest.
class CutLogNormal {
 public:
  // REQUIRES: 1 <= average < longest.
  CutLogNormal(double average, int64_t longest);
  int64_t Draw(Engine& engine) const;  // from 1 to the longest

 private:
  const int64_t longest_;
  const double mu_;  // of the whole distribution
};

// The lengths of a workload, and those of a file with one on each line, which are taken in turn. Empty lines and
// lines that begin with # are skipped. INVALID_ARGUMENT names the line.
std::vector<int64_t> DrawLengths(const BatchWorkload& workload, int count, uint64_t seed);
absl::StatusOr<std::vector<int64_t>> ReadLengths(std::string_view text, int count);

// Requests of these lengths, `generate` tokens each. `padded`: all prompts are as long as the longest, as systems have
// them that pad.
std::vector<Request> MakeBatchRequests(std::vector<int64_t> lengths, int64_t generate, bool padded, int64_t vocab_size,
                                       uint64_t seed);

}  // namespace moestro::loadtest
