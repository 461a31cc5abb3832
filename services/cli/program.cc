#include "services/cli/program.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "common/base/exceptions.h"
#include "common/platform/memory_fault.h"
#include "common/process/node_options.h"
#include "common/process/process.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

// Reports the error, which includes results that could not be written, and returns the exit code.
int Finish(absl::Status status) {
  status.Update(OutputStatus());
  if (!status.ok()) std::fprintf(stderr, "moestro: %s\n", std::string(status.message()).c_str());
  return ExitCode(status);
}

}  // namespace

int RunProgram(int argc, char** argv, const std::string& description, const std::string& footer,
               const std::vector<AddCommand>& adders) {
  ExitOnMemoryFault(kExitMemoryFault);
  CLI::App app{description +
               "\nResults go to stdout, progress and summaries to stderr.\n"
               "Exit codes: 0 done, 1 failed, 2 a flag or an input is wrong, 3 the node or memory is not available,\n"
               "4 inspected shared memory could not be read."};
  app.set_version_flag("--version", "moestro " + ProgramVersion());
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  app.footer(footer);

  std::vector<Command> commands;
  for (const AddCommand add : adders) add(app, commands);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? Finish(absl::OkStatus()) : kExitUsage;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return Finish(CatchExceptions(command.run));
  }
  return kExitUsage;
}

}  // namespace moestro::cli
