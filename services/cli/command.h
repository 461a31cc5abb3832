// The subcommands of `moestro`. Each file adds its own.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace moestro::cli {

struct Command {
  CLI::App* app;                      // if parsed, this is the command to run
  std::function<absl::Status()> run;  // prints its result on stdout; the error becomes one line on stderr
};

// Each adds its flags to `app` and itself to `commands`.
void AddGenerateCommand(CLI::App& app, std::vector<Command>& commands);
void AddChatCommand(CLI::App& app, std::vector<Command>& commands);
void AddScoreCommand(CLI::App& app, std::vector<Command>& commands);
void AddBatchCommand(CLI::App& app, std::vector<Command>& commands);
void AddEvalCommand(CLI::App& app, std::vector<Command>& commands);
void AddTextCommands(CLI::App& app, std::vector<Command>& commands);  // tokenize, detokenize
void AddModelCommand(CLI::App& app, std::vector<Command>& commands);
void AddHealthCommand(CLI::App& app, std::vector<Command>& commands);
void AddStatusCommand(CLI::App& app, std::vector<Command>& commands);
void AddInspectCommand(CLI::App& app, std::vector<Command>& commands);
void AddSegmentsCommands(CLI::App& app, std::vector<Command>& commands);
void AddKeysCommands(CLI::App& app, std::vector<Command>& commands);
void AddMakeModelCommand(CLI::App& app, std::vector<Command>& commands);
void AddBenchCommand(CLI::App& app, std::vector<Command>& commands);
void AddBenchModelCommand(CLI::App& app, std::vector<Command>& commands);
void AddRoutingCommand(CLI::App& app, std::vector<Command>& commands);
void AddPlanCommand(CLI::App& app, std::vector<Command>& commands);
void AddSimulateCommand(CLI::App& app, std::vector<Command>& commands);
void AddPaperCommand(CLI::App& app, std::vector<Command>& commands);

}  // namespace moestro::cli
