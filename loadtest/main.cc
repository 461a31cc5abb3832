// moestro-loadtest: loads a running node and reports how it keeps up.
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "common/process/flags.h"
#include "common/process/process.h"
#include "loadtest/commands/command.h"

int main(int argc, char** argv) {
  namespace loadtest = moestro::loadtest;
  moestro::TerminationSignal signal;  // before any thread
  moestro::ProgramFlags program{
      "moestro-loadtest: loads a running node over gRPC and reports how it keeps up.\n\n"
      "A report goes to stdout as Markdown, with --out DIR also to files: Markdown, JSON, and one HTML page with "
      "plots.\n"
      "Progress goes to stderr. Ctrl-C ends early, with a report of the measurements so far.\n\n"
      "  moestro-loadtest poisson --rate 2 --duration 60 --out results\n"
      "  moestro-loadtest paper --seconds-each 20 --rounds 5 --out results\n"
      "  moestro-loadtest verify --count 500 --concurrency 32 --metrics 127.0.0.1:9403\n\n"
      "loadtest/README.md explains every figure.\n"
      "Exit codes: 0 done, 1 failed (a mismatch, nothing compared, or no request completed), 2 a flag or an input is "
      "wrong, 3 the node is not available.\n"};
  program.AddVersion(std::string("moestro-loadtest ") + MOESTRO_VERSION);
  program.RequireCommands(1, 1);
  program.AllowAfterCommands();

  loadtest::SessionFlags flags;
  loadtest::AddSessionFlags(program, flags);
  std::vector<loadtest::TrafficCommand> commands;
  loadtest::AddPaperCommand(program, commands);
  loadtest::AddPoissonCommand(program, commands);
  loadtest::AddChatCommand(program, commands);
  loadtest::AddReplayCommand(program, commands);
  loadtest::AddRampCommand(program, commands);
  loadtest::AddBatchCommand(program, commands);
  loadtest::AddVerifyCommand(program, commands);

  if (const std::optional<int> exit_code = program.Parse(argc, argv)) return *exit_code;
  for (const loadtest::TrafficCommand& command : commands) {
    if (!command.flags.WasGiven()) continue;
    const absl::Status status = command.run(flags, [&signal] { return signal.WaitFor(std::chrono::milliseconds(0)); });
    if (!status.ok()) std::fprintf(stderr, "moestro-loadtest: %s\n", std::string(status.message()).c_str());
    return moestro::ExitCode(status);
  }
  return moestro::kExitUsage;
}
