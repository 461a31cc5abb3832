// The subcommands of `moestro routing` that write traces.
#pragma once

#include <vector>

#include "services/cli/command.h"

namespace moestro::cli {

// make, fit and import.
void AddTraceCommands(FlagSet& routing, std::vector<Command>& commands);

}  // namespace moestro::cli
