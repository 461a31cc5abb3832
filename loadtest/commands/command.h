// The subcommands of moestro-loadtest. Each file adds its own.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "common/process/flags.h"
#include "loadtest/commands/session.h"

namespace moestro::loadtest {

struct TrafficCommand {
  FlagSet flags;  // if given, this is the command to run
  std::function<absl::Status(const SessionFlags& flags, std::function<bool()> interrupted)> run;
};

void AddBatchCommand(FlagSet& program, std::vector<TrafficCommand>& commands);
void AddPaperCommand(FlagSet& program, std::vector<TrafficCommand>& commands);
void AddPoissonCommand(FlagSet& program, std::vector<TrafficCommand>& commands);
void AddChatCommand(FlagSet& program, std::vector<TrafficCommand>& commands);
void AddReplayCommand(FlagSet& program, std::vector<TrafficCommand>& commands);
void AddRampCommand(FlagSet& program, std::vector<TrafficCommand>& commands);
void AddVerifyCommand(FlagSet& program, std::vector<TrafficCommand>& commands);

}  // namespace moestro::loadtest
