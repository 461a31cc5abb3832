#include "loadtest/commands/calibrate.h"

#include <algorithm>

#include "common/base/status.h"

namespace moestro::loadtest {
namespace {

constexpr int64_t kFirstPrompt = 256;   // tokens; short, because no rate is known yet
constexpr uint32_t kDecodeProbe = 32;   // tokens
constexpr double kProbeShare = 0.25;    // of the wanted time: the second prefill probe
constexpr double kLeastSeconds = 1e-6;  // the smallest divisor

int64_t Scale(int64_t tokens, double factor, int64_t most) {
  return std::clamp(static_cast<int64_t>(static_cast<double>(tokens) * factor), int64_t{1}, most);
}

}  // namespace

absl::Status CalibratePaper(double seconds, int64_t max_context_tokens,
                            const std::function<absl::StatusOr<Record>(const Request&)>& run, PaperOptions* options) {
  // Not the workload's seed: its prompts must not be in a cache already.
  PromptMaker prompts(options->vocab_size, options->seed + 1);
  PaperOptions probe = *options;
  const int64_t longest_prompt = max_context_tokens - options->prefill_output_tokens;
  probe.prefill_prompt_tokens = std::min(kFirstPrompt, longest_prompt);
  // Attention grows with the square of the prompt, and short prompts take another path. So rates are valid only near
  // the wanted length.
  for (const double share : {kProbeShare, 1.0}) {
    MOE_ASSIGN_OR_RETURN(const Record record, run(PrefillRequest(probe, prompts)));
    const double factor = share * seconds / std::max(kLeastSeconds, record.ttft().value_or(0));
    probe.prefill_prompt_tokens = Scale(probe.prefill_prompt_tokens, factor, longest_prompt);
  }
  options->prefill_prompt_tokens = probe.prefill_prompt_tokens;
  const int64_t longest_answer = max_context_tokens - options->decode_prompt_tokens;
  probe.decode_output_tokens = static_cast<uint32_t>(std::min<int64_t>(kDecodeProbe, longest_answer));
  MOE_ASSIGN_OR_RETURN(const Record record, run(DecodeRequest(probe, prompts)));
  const double factor = seconds / std::max(kLeastSeconds, record.tpot().value_or(0));
  options->decode_output_tokens = static_cast<uint32_t>(std::max<int64_t>(2, Scale(1, factor, longest_answer)));
  return absl::OkStatus();
}

}  // namespace moestro::loadtest
