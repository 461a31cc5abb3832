#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "common/base/status.h"
#include "common/process/choice.h"
#include "loadtest/bench/model_run.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct BenchModelFlags {
  std::string segment;
  bench::ModelRunOptions options;
};

absl::Status BenchModel(const BenchModelFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const bench::ModelRun run, bench::MeasureModel(flags.segment, flags.options));
  PrintJson(bench::ModelRunJson(run), /*indent=*/true);
  return absl::OkStatus();
}

}  // namespace

void AddBenchModelCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<BenchModelFlags>();
  FlagSet command = program.AddCommand(
      "bench-model", "Time prompt and decode of the model in a weight store's segment, without a node, as JSON");
  command.Add("--segment", flags->segment, "Name of the segment, from `moestro segments list`").Required();
  command.Add("--threads", flags->options.threads, "Worker threads; 0: all cores");
  command.Add("--repetitions", flags->options.repetitions, "Repetitions after one that warms up");
  command.Add("--prompt", flags->options.prompt_tokens, "Tokens of the prompt, computed in one pass");
  command.Add("--decode", flags->options.decode_tokens, "Tokens decoded one by one, from an empty cache");
  AddWords(
      command, "--int8-activations", {kInt8ActivationsWords.begin(), kInt8ActivationsWords.end()},
      std::string(kInt8ActivationsWords[static_cast<size_t>(flags->options.int8_activations)]),
      [flags](size_t word) { flags->options.int8_activations = static_cast<Int8Activations>(word); },
      std::string(kInt8ActivationsHelp));
  commands.push_back({command, [flags] { return BenchModel(*flags); }});
}

}  // namespace moestro::cli
