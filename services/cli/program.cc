#include "services/cli/program.h"

#include <cstdio>
#include <optional>

#include "common/base/exceptions.h"
#include "common/platform/memory_fault.h"
#include "common/process/flags.h"
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
  ProgramFlags program{
      description +
      "\nResults go to stdout, progress and summaries to stderr.\n"
      "Exit codes: 0 done, 1 failed, 2 a flag or an input is wrong, 3 the node or memory is not available,\n"
      "4 inspected shared memory could not be read."};
  program.AddVersion("moestro " + ProgramVersion());
  program.RequireCommands(1, 1);
  program.Footer(footer);

  std::vector<Command> commands;
  for (const AddCommand add : adders) add(program, commands);

  if (const std::optional<int> exit_code = program.Parse(argc, argv)) {
    return *exit_code == kExitOk ? Finish(absl::OkStatus()) : *exit_code;
  }
  for (const Command& command : commands) {
    if (command.flags.WasGiven()) return Finish(CatchExceptions(command.run));
  }
  return kExitUsage;
}

}  // namespace moestro::cli
