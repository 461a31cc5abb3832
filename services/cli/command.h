// The subcommands of `moestro`. Each file adds its own.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "common/process/flags.h"

namespace moestro::cli {

struct Command {
  FlagSet flags;                      // if given, this is the command to run
  std::function<absl::Status()> run;  // prints its result on stdout; the error becomes one line on stderr
};

// Each adds its flags to `program` and itself to `commands`.
void AddGenerateCommand(FlagSet& program, std::vector<Command>& commands);
void AddChatCommand(FlagSet& program, std::vector<Command>& commands);
void AddScoreCommand(FlagSet& program, std::vector<Command>& commands);
void AddBatchCommand(FlagSet& program, std::vector<Command>& commands);
void AddEvalCommand(FlagSet& program, std::vector<Command>& commands);
void AddTextCommands(FlagSet& program, std::vector<Command>& commands);  // tokenize, detokenize
void AddModelCommand(FlagSet& program, std::vector<Command>& commands);
void AddHealthCommand(FlagSet& program, std::vector<Command>& commands);
void AddStatusCommand(FlagSet& program, std::vector<Command>& commands);
void AddConfigCommand(FlagSet& program, std::vector<Command>& commands);
void AddInspectCommand(FlagSet& program, std::vector<Command>& commands);
void AddSegmentsCommands(FlagSet& program, std::vector<Command>& commands);
void AddKeysCommands(FlagSet& program, std::vector<Command>& commands);
void AddMakeModelCommand(FlagSet& program, std::vector<Command>& commands);
void AddBenchCommand(FlagSet& program, std::vector<Command>& commands);
void AddBenchModelCommand(FlagSet& program, std::vector<Command>& commands);
void AddRoutingCommand(FlagSet& program, std::vector<Command>& commands);
void AddPlanCommand(FlagSet& program, std::vector<Command>& commands);
void AddSimulateCommand(FlagSet& program, std::vector<Command>& commands);
void AddPaperCommand(FlagSet& program, std::vector<Command>& commands);

}  // namespace moestro::cli
