// The workloads of "Cloud-grade SLOs for local MoE", section 4.5: one prefill request and up to two decode requests
// that begin at the same moment. A prefill request has a long prompt that shares no prefix, and a short answer. A
// decode request has a prompt of 10 tokens and a long answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loadtest/workloads/prompts.h"
#include "loadtest/workloads/workload.h"

namespace moestro::loadtest {

struct PaperLoad {
  const char* name;
  int prefills;
  int decodes;
};
// In the order of the paper's Fig. 18.
inline constexpr PaperLoad kPaperLoads[] = {{"1P", 1, 0}, {"1D", 0, 1}, {"1P+1D", 1, 1}, {"2D", 0, 2}, {"1P+2D", 1, 2}};
inline constexpr int kPaperLoadCount = 5;

struct PaperOptions {
  int rounds = 5;
  int servers = 1;
  int64_t prefill_prompt_tokens = 4096;
  uint32_t prefill_output_tokens = 4;
  int64_t decode_prompt_tokens = 10;
  uint32_t decode_output_tokens = 480;
  double pause_seconds = 0.5;  // between two loads, so that the server becomes idle
  int64_t vocab_size = 0;
  uint64_t seed = 0;
};

struct PaperCell {
  int round = 0;
  int load = 0;  // index of kPaperLoads
  int server = 0;
};
// Every load runs once per round on every server. Each round starts with the next load and the other server, so that no
// load always follows the same one.
std::vector<PaperCell> PlanCells(int rounds, int servers);

class PaperWorkload : public Workload {
 public:
  explicit PaperWorkload(const PaperOptions& options);

  std::optional<double> NextArrival(double now) override;
  Request Take(double now) override;  // group "prefill in 1P+1D" or "decode in 1P+1D"; tag: the cell's index
  void OnEnd(const Record& record) override;

  const std::vector<PaperCell>& cells() const { return cells_; }
  std::string Progress() const;  // "round 2 of 5, 1P+1D"

 private:
  const PaperOptions options_;
  const std::vector<PaperCell> cells_;
  PromptMaker prompts_;
  size_t cell_ = 0;
  int taken_ = 0;  // of this cell
  int ended_ = 0;
  double begin_ = 0;  // of this cell
};

Request PrefillRequest(const PaperOptions& options, PromptMaker& prompts);
Request DecodeRequest(const PaperOptions& options, PromptMaker& prompts);

}  // namespace moestro::loadtest
