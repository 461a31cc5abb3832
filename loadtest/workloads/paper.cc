#include "loadtest/workloads/paper.h"

#include "absl/strings/str_cat.h"

namespace moestro::loadtest {

std::vector<PaperCell> PlanCells(int rounds, int servers) {
  std::vector<PaperCell> cells;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kPaperLoadCount; ++i) {
      for (int j = 0; j < servers; ++j) {
        cells.push_back({.round = round, .load = (i + round) % kPaperLoadCount, .server = (j + round) % servers});
      }
    }
  }
  return cells;
}

Request PrefillRequest(const PaperOptions& options, PromptMaker& prompts) {
  Request request;
  request.group = "prefill";
  request.token_ids = prompts.Random(options.prefill_prompt_tokens);
  request.max_tokens = options.prefill_output_tokens;
  return request;
}

Request DecodeRequest(const PaperOptions& options, PromptMaker& prompts) {
  Request request;
  request.group = "decode";
  request.token_ids = prompts.Random(options.decode_prompt_tokens);
  request.max_tokens = options.decode_output_tokens;
  return request;
}

PaperWorkload::PaperWorkload(const PaperOptions& options)
    : options_(options),
      cells_(PlanCells(options.rounds, options.servers)),
      prompts_(options.vocab_size, options.seed) {}

std::optional<double> PaperWorkload::NextArrival(double) {
  if (cell_ == cells_.size()) return std::nullopt;
  const PaperLoad& load = kPaperLoads[cells_[cell_].load];
  return taken_ < load.prefills + load.decodes ? std::optional(begin_) : std::nullopt;
}

Request PaperWorkload::Take(double) {
  const PaperLoad& load = kPaperLoads[cells_[cell_].load];
  const bool prefill = taken_++ < load.prefills;
  Request request = prefill ? PrefillRequest(options_, prompts_) : DecodeRequest(options_, prompts_);
  absl::StrAppend(&request.group, " in ", load.name);
  request.tag = static_cast<int64_t>(cell_);
  request.server = cells_[cell_].server;
  return request;
}

void PaperWorkload::OnEnd(const Record& record) {
  const PaperLoad& load = kPaperLoads[cells_[cell_].load];
  if (++ended_ < load.prefills + load.decodes) return;
  ++cell_;
  taken_ = ended_ = 0;
  begin_ = *record.ended + options_.pause_seconds;
}

std::string PaperWorkload::Progress() const {
  if (cell_ == cells_.size()) return "done";
  return absl::StrCat("round ", cells_[cell_].round + 1, " of ", options_.rounds, ", ",
                      kPaperLoads[cells_[cell_].load].name);
}

}  // namespace moestro::loadtest
