// The subcommands of `moestro routing` that write traces.
#pragma once

#include <vector>

#include "services/cli/command.h"

namespace moestro::cli {

// make, fit and import.
void AddTraceCommands(CLI::App& routing, std::vector<Command>& commands);

}  // namespace moestro::cli
