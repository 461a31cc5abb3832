// moestro-loadtest: loads a running node and reports how it keeps up.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "common/process/process.h"
#include "loadtest/commands/command.h"

int main(int argc, char** argv) {
  namespace loadtest = moestro::loadtest;
  moestro::TerminationSignal signal;  // before any thread
  CLI::App app{
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
  app.set_version_flag("--version", std::string("moestro-loadtest ") + MOESTRO_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // the flags below may also follow the workload
  app.option_defaults()->always_capture_default();

  loadtest::SessionFlags flags;
  loadtest::AddSessionFlags(app, flags);
  std::vector<loadtest::TrafficCommand> commands;
  loadtest::AddPaperCommand(app, commands);
  loadtest::AddPoissonCommand(app, commands);
  loadtest::AddChatCommand(app, commands);
  loadtest::AddReplayCommand(app, commands);
  loadtest::AddRampCommand(app, commands);
  loadtest::AddBatchCommand(app, commands);
  loadtest::AddVerifyCommand(app, commands);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? moestro::kExitOk : moestro::kExitUsage;
  }
  for (const loadtest::TrafficCommand& command : commands) {
    if (!command.app->parsed()) continue;
    const absl::Status status = command.run(flags, [&signal] { return signal.WaitFor(std::chrono::milliseconds(0)); });
    if (!status.ok()) std::fprintf(stderr, "moestro-loadtest: %s\n", std::string(status.message()).c_str());
    return moestro::ExitCode(status);
  }
  return moestro::kExitUsage;
}
