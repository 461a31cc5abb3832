// The subcommands of moestro-loadtest. Each file adds its own.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "loadtest/commands/session.h"

namespace CLI {
class App;
}

namespace moestro::loadtest {

struct TrafficCommand {
  CLI::App* app;  // if parsed, this is the command to run
  std::function<absl::Status(const SessionFlags& flags, std::function<bool()> interrupted)> run;
};

void AddBatchCommand(CLI::App& app, std::vector<TrafficCommand>& commands);
void AddPaperCommand(CLI::App& app, std::vector<TrafficCommand>& commands);
void AddPoissonCommand(CLI::App& app, std::vector<TrafficCommand>& commands);
void AddChatCommand(CLI::App& app, std::vector<TrafficCommand>& commands);
void AddReplayCommand(CLI::App& app, std::vector<TrafficCommand>& commands);
void AddRampCommand(CLI::App& app, std::vector<TrafficCommand>& commands);
void AddVerifyCommand(CLI::App& app, std::vector<TrafficCommand>& commands);

}  // namespace moestro::loadtest
