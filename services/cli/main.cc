// moestro: the command line of a node.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "common/base/exceptions.h"
#include "common/platform/memory_fault.h"
#include "common/process/process.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace {

// Reports the error, which includes results that could not be written, and returns the exit code.
int Finish(absl::Status status) {
  status.Update(moestro::cli::OutputStatus());
  if (!status.ok()) std::fprintf(stderr, "moestro: %s\n", std::string(status.message()).c_str());
  return moestro::ExitCode(status);
}

}  // namespace

int main(int argc, char** argv) {
  moestro::ExitOnMemoryFault(moestro::kExitMemoryFault);
  CLI::App app{
      "moestro: talk to a running node, and inspect checkpoints and shared memory.\n"
      "Results go to stdout, progress and summaries to stderr.\n"
      "Exit codes: 0 done, 1 failed, 2 a flag or an input is wrong, 3 the node or memory is not available,\n"
      "4 inspected shared memory could not be read."};
  app.set_version_flag("--version", std::string("moestro ") + MOESTRO_VERSION);
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();

  std::vector<moestro::cli::Command> commands;
  moestro::cli::AddGenerateCommand(app, commands);
  moestro::cli::AddChatCommand(app, commands);
  moestro::cli::AddScoreCommand(app, commands);
  moestro::cli::AddBatchCommand(app, commands);
  moestro::cli::AddEvalCommand(app, commands);
  moestro::cli::AddTextCommands(app, commands);
  moestro::cli::AddModelCommand(app, commands);
  moestro::cli::AddHealthCommand(app, commands);
  moestro::cli::AddStatusCommand(app, commands);
  moestro::cli::AddInspectCommand(app, commands);
  moestro::cli::AddSegmentsCommands(app, commands);
  moestro::cli::AddKeysCommands(app, commands);
  moestro::cli::AddMakeModelCommand(app, commands);
  moestro::cli::AddBenchCommand(app, commands);
  moestro::cli::AddBenchModelCommand(app, commands);
  moestro::cli::AddRoutingCommand(app, commands);
  moestro::cli::AddPlanCommand(app, commands);
  moestro::cli::AddSimulateCommand(app, commands);
  moestro::cli::AddPaperCommand(app, commands);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? Finish(absl::OkStatus()) : moestro::kExitUsage;
  }
  for (const moestro::cli::Command& command : commands) {
    if (command.app->parsed()) return Finish(moestro::CatchExceptions(command.run));
  }
  return moestro::kExitUsage;
}
