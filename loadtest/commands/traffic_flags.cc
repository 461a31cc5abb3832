#include "loadtest/commands/traffic_flags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/process/flags.h"
#include "common/report/number.h"

namespace moestro::loadtest {

void AddTrafficFlags(FlagSet& command, TrafficFlags& flags) {
  command.Add("--prompt-tokens", flags.prompt_tokens,
              "Length of prompts: a count (512), a range (100-2000) or lognormal:MEDIAN,SIGMA");
  command.Add("--output-tokens", flags.output_tokens, "Length of answers, in the same forms");
  command.Add("--prompt-file", flags.prompt_file,
              "File of text prompts, one per line, sent in turn instead of random ids");
  command.Add("--temperature", flags.temperature, "0: greedy").Range(0.0F, 2.0F);
}

absl::StatusOr<std::string> ReadFile(const char* flag, const std::string& path) {
  absl::StatusOr<std::string> text = moestro::ReadFile(path);
  if (!text.ok()) return absl::Status(text.status().code(), absl::StrCat(flag, ": ", text.status().message()));
  return text;
}

absl::StatusOr<TrafficOptions> ToTrafficOptions(const TrafficFlags& flags, const ModelInfo& model, uint64_t seed) {
  TrafficOptions options;
  MOE_ASSIGN_OR_RETURN(options.prompt, Lengths::Parse("--prompt-tokens", flags.prompt_tokens));
  MOE_ASSIGN_OR_RETURN(options.output, Lengths::Parse("--output-tokens", flags.output_tokens));
  if (!flags.prompt_file.empty()) {
    MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile("--prompt-file", flags.prompt_file));
    options.texts = absl::StrSplit(text, '\n', absl::SkipWhitespace());
    if (options.texts.empty()) return absl::InvalidArgumentError("--prompt-file has no line with text");
  }
  options.temperature = flags.temperature;
  options.vocab_size = model.vocab_size;
  options.max_context_tokens = model.max_context_tokens;
  options.seed = seed;
  return options;
}

void AddTrafficFacts(const TrafficFlags& flags, Report& report) {
  report.facts.emplace_back("Prompts", flags.prompt_file.empty()
                                           ? absl::StrCat("random ids, ", flags.prompt_tokens, " tokens")
                                           : "text from a file");
  report.facts.emplace_back(
      "Answers", absl::StrCat(flags.output_tokens, " tokens, ",
                              flags.temperature > 0 ? absl::StrCat("temperature ", ShortNumber(flags.temperature))
                                                    : std::string("greedy")));
}

}  // namespace moestro::loadtest
