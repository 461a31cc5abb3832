// What main of `moestro` and of `moestro-lab` share.
#pragma once

#include <string>
#include <vector>

#include "services/cli/command.h"

namespace moestro::cli {

using AddCommand = void (*)(FlagSet& program, std::vector<Command>& commands);

// The body of main: parses the flags, runs the command that they name and reports its error. Returns the exit code.
// `description` and `footer` are the first and the last paragraph of --help.
int RunProgram(int argc, char** argv, const std::string& description, const std::string& footer,
               const std::vector<AddCommand>& adders);

}  // namespace moestro::cli
